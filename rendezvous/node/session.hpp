// A session between a member and its coordinator, which outlives the connection that carries it. A network that resets
// connections (a NAT or firewall that forgets, a route that moves) would otherwise end the round for all nodes. The side that
// dialled dials again at once and names the session. Both sides say how many messages they have received, and send the missing
// ones again: each message arrives once, and in order. Only when nobody comes back in time (Rules::resume) is the link closed;
// otherwise nothing else learns of the reset.
//
// This file is one end of one session; leader_session.hpp is a member's, member_sessions.hpp a coordinator's. Pure. The class
// owns the messages that may not have arrived, and the number of those that have.
//
// Note: what is not sent again. A ping and its answer are worthless later and are repeated anyway; they carry the number of
// received messages. Greetings and elections come before a session, or beside it.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

// The Hello that opened the session: a node sends each Hello once.
struct SessionId {
  NodeId node{};
  std::uint64_t incarnation = 0;
  std::uint64_t attempt = 0;
  auto operator<=>(const SessionId&) const = default;
};

// Nodes differ; two Hellos of one node are rare.
struct HashSessionId {
  std::size_t operator()(const SessionId& id) const { return HashNodeId()(id.node); }
};

template <class Variant>
bool belongs_to_session(const Variant& message) {
  return std::visit(
      [](const auto& concrete) {
        using M = std::decay_t<decltype(concrete)>;
        constexpr bool kGreets = std::is_same_v<M, Hello> || std::is_same_v<M, Welcome> || std::is_same_v<M, Refused> ||
                                 std::is_same_v<M, Redirect> || std::is_same_v<M, Vote> || std::is_same_v<M, VoteRequest>;
        constexpr bool kOfItself = std::is_same_v<M, Resume> || std::is_same_v<M, Resumed> || std::is_same_v<M, Received>;
        return !kGreets && !kOfItself && !std::is_same_v<M, Ping> && !std::is_same_v<M, Pong>;
      },
      message);
}

// The approximate size of a message, since values of the workers' store may be large, and so may what people ask.
template <class Variant>
std::size_t weight_of(const Variant& message) {
  static constexpr std::size_t kOfAny = 256;
  return std::visit(
      [](const auto& concrete) {
        using M = std::decay_t<decltype(concrete)>;
        if constexpr (std::is_same_v<M, StoreAsk>) {
          return kOfAny + concrete.request.value.size() + concrete.request.expected.size();
        } else if constexpr (std::is_same_v<M, StoreAnswer>) {
          return kOfAny + concrete.reply.value.size();
        } else if constexpr (requires { concrete.text.size(); }) {
          return kOfAny + concrete.text.size();
        } else {
          return kOfAny;
        }
      },
      message);
}

template <class Out, class In>
class SessionEnd {
 public:
  // Counts and keeps an outgoing message, whether it can be sent now or not.
  void say(Out& message) {
    if constexpr (std::is_same_v<Out, FromMember>) {
      if (auto* ping = std::get_if<Ping>(&message)) ping->received = received_;
    } else {
      if (auto* pong = std::get_if<Pong>(&message)) pong->received = received_;
    }
    if (!belongs_to_session(message)) return;
    ++said_;
    kept_weight_ += weight_of(message);
    if (kept_.empty()) kept_.reserve(kOfARound);
    kept_.push_back(message);
    if (kept_weight_ <= kMostKept) return;
    kept_.clear();  // a node that misses so much is better lost
    kept_weight_ = 0;
    broken_ = true;
  }
  // False: the message is about the session itself.
  bool hear(const In& message) {
    if constexpr (std::is_same_v<In, FromMember>) {
      if (const auto* ping = std::get_if<Ping>(&message)) forget(ping->received);
    } else {
      if (const auto* pong = std::get_if<Pong>(&message)) forget(pong->received);
    }
    if (const auto* received = std::get_if<Received>(&message)) {
      forget(received->count);
      return false;
    }
    if (belongs_to_session(message)) {
      ++received_;
      unconfirmed_ += weight_of(message);
    }
    return true;
  }
  // A Received to be sent now, so that the other side need not keep so much.
  std::optional<Received> confirmation() {
    if (unconfirmed_ < kConfirmedAfter) return std::nullopt;
    unconfirmed_ = 0;
    return Received{received_};
  }

  std::uint64_t received() const { return received_; }
  // The other side has received that many messages. False: the session can't be resumed from there.
  bool resume(std::uint64_t had) {
    forget(had);
    return !broken_ && had <= said_ && said_ - had == kept_.size();
  }
  // The messages that it has not received, in order.
  const std::vector<Out>& missing() const { return kept_; }

 private:
  static constexpr std::size_t kOfARound = 2;  // messages, mostly, between two of the other side's confirmations
  static constexpr std::size_t kMostKept = 128u << 20;
  static constexpr std::size_t kConfirmedAfter = 1u << 20;

  void forget(std::uint64_t had) {
    const std::uint64_t forgotten = said_ - kept_.size();
    if (had <= forgotten) return;
    const std::size_t count = std::min<std::size_t>(had - forgotten, kept_.size());
    for (std::size_t i = 0; i < count; ++i) kept_weight_ -= weight_of(kept_[i]);
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count));
    if (kept_.empty()) std::vector<Out>().swap(kept_);
  }

  std::vector<Out> kept_;
  std::size_t kept_weight_ = 0;
  std::uint64_t said_ = 0;
  std::uint64_t received_ = 0;
  std::size_t unconfirmed_ = 0;
  bool broken_ = false;
};

}  // namespace ddprun::rendezvous
