// The names of events for people and for the report.
#include "launcher/events/run_event.hpp"

#include <algorithm>
#include <cstdio>

#include "common/base/check.hpp"

namespace ddprun {

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

std::string describe(const CutOff& event) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", event.seconds);
  return "no answer from the coordinator for " + std::string(seconds) +
         " s: the workers of this node were ended, since the other nodes may have gone on without it";
}

std::string describe(const StopIsSlow& event) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.0f", event.seconds);
  std::string text;
  if (event.first) {
    text = "rank " + std::to_string(event.first->rank) + " (pid " + std::to_string(event.first->pid) +
           ") failed: " + how_it_failed(*event.first) + "; ";
  }
  text += "the workers were told to stop " + std::string(seconds) + " s ago, and this is waited for:";
  for (const StopIsSlow::Awaited& one : event.awaited) {
    text += " rank " + std::to_string(one.rank) + " (pid " + std::to_string(one.pid) + ")";
    if (!one.summary.empty()) text += " in " + one.summary;
    text += one.pid == event.awaited.back().pid ? "" : ";";
  }
  return text;
}

std::string describe(const WorkersLeft& event) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.0f", event.seconds);
  const bool one = event.ended.size() == 1;
  return ranks_text(event.ended) + (one ? " ended" : " have ended") + " with exit code 0, " + (one ? "" : "the first ") +
         seconds + " s ago, and " + ranks_text(event.running) +
         (event.running.size() == 1 ? " runs on, perhaps waiting for " : " run on, perhaps waiting for ") +
         (one ? "it" : "them");
}

std::string describe(const HelperIgnored& event) {
  return "rank " + std::to_string(event.rank) + ": " + event.why + "; what it reports is ignored, and the job goes on";
}

HelperIgnored no_protocol(int rank, const std::string& error, std::int64_t time_ns) {
  return {rank, "what came over its channel is not the protocol of one (" + error + ")", time_ns};
}

const char* name_of(RoundFailed::Decision decision) {
  switch (decision) {
    case RoundFailed::Decision::kRestart:
      return "restart";
    case RoundFailed::Decision::kRegroup:
      return "regroup";
    case RoundFailed::Decision::kGiveUp:
      return "give_up";
  }
  check_failed("a round ends in a way that there is not");
}

std::string how_it_failed(const Failure& failure) {
  return failure.status && failure.cause != Cause::kHang ? describe(*failure.status) : failure.message;
}

}  // namespace ddprun
