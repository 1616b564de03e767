#include "launcher/events/node_notice.hpp"

namespace ddprun {

using Kind = rendezvous::NodeNotice::Kind;

std::string notice_line(const rendezvous::NodeNotice& notice) {
  const std::string here = std::to_string(notice.count) + " of " + std::to_string(notice.of) + " nodes are present";
  switch (notice.kind) {
    case Kind::kWaiting:
      if (notice.of == 0) return notice.text;
      if (notice.text == "for more nodes" && notice.count >= notice.of) return "";  // no line, since the round starts now
      // The text contains "ready" and not "present", because a node that has joined may not be ready yet. So the number can be
      // lower than in the previous line.
      if (notice.text == "for nodes" || notice.text == "for more nodes")
        return "waiting " + notice.text + ": " + std::to_string(notice.count) + " of " + std::to_string(notice.of) +
               " are ready";
      return "waiting " + notice.text + ": " + here;
    case Kind::kJoined:
      return "node " + notice.text + " joined; " + here;
    case Kind::kLost:
      return "node " + notice.text + "; " + here;
    case Kind::kSetAside:
      return "a node lost its connection too often; the node can join again in " + std::to_string(notice.count / 1000) + " s";
    case Kind::kRefused:
      return notice.text;
    case Kind::kReleased:
      return notice.text + " starts with " + std::to_string(notice.count) + (notice.count == 1 ? " node" : " nodes");
    case Kind::kRoundOver:
      return "the round is over: " + notice.text;
    case Kind::kLeading:
      return notice.text.starts_with("term ") ? "" : notice.text;
    case Kind::kSearching:
    case Kind::kDecided:
    case Kind::kFailing:
      return notice.text;
    case Kind::kFollowing:
      return "joined the job";
  }
  return "";
}

const char* notice_keyword(Kind kind) {
  switch (kind) {
    case Kind::kWaiting:
      return "waiting";
    case Kind::kJoined:
      return "joined";
    case Kind::kLost:
      return "lost";
    case Kind::kSetAside:
      return "set_aside";
    case Kind::kRefused:
      return "refused";
    case Kind::kReleased:
      return "released";
    case Kind::kRoundOver:
      return "round_over";
    case Kind::kLeading:
      return "leading";
    case Kind::kSearching:
      return "looking";
    case Kind::kFollowing:
      return "following";
    case Kind::kDecided:
      return "decided";
    case Kind::kFailing:
      return "failing";
  }
  return "unknown";
}

}  // namespace ddprun
