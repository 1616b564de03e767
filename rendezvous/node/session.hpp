// A session between a member and its coordinator. It outlives the connection that carries it.
//
// The problem. Networks reset connections that neither side wants to close: a NAT or firewall forgets them, a route moves. Once
// every reset ended the round for all nodes, and four within a minute set the node aside. TCP does not help: a sender whose
// connection is reset cannot know which of its last messages arrived. If it sends them again, an `add` to the workers' store
// may count twice. If it does not, a lost Ready makes all nodes wait.
//
// The idea. Each end counts the messages that it sends and receives. It keeps those that the other end has not confirmed. After
// a reset the side that dialled dials again at once and names the session by its Hello. Both ends exchange their counts of
// received messages and send the missing ones again. So each message arrives once and in order.
//
// Example: the coordinator sends messages 1 to 9, and the connection is reset when the member has received 7. The member dials
// again and sends Resume{received = 7}. The coordinator drops messages up to 7, answers Resumed with its own count, and sends 8
// and 9. The state machines of both nodes learn nothing of this.
//
// Messages carry no numbers: a connection keeps their order, so the count is the number. Hence nothing may overtake a message
// of the session, not even in the queue that waits for the disk (record_gate.hpp). A ping and its answer are not counted. They
// are worthless later, are repeated anyway, and carry the confirmations. Greetings and elections come before a session or run
// outside of it.
//
// A session waits for a new connection for a fifth of the lease, at most one second (Rules::resume). Then the link is closed,
// and the node is lost. That time is shorter than the silence that a lease tolerates, so no lease depends on it. A process that
// ends closes its connection without a reset. No process is left that could accept a new one. So the loss of a process is
// noticed at once, as without sessions.
//
// The cost. The coordinator keeps about 1 KB for each node and round, until the next ping confirms it. Large store values are
// confirmed sooner. An end that has to keep more than 128 MiB breaks the session.
//
// What was tried. A member could repeat its state in a new Hello, without counts. Then each message would need a rule of its
// own, and the store's `add` would need numbers anyway.
//
// This file is one end of one session; leader_session.hpp is a member's end, member_sessions.hpp a coordinator's ends. Pure.
// The class owns the messages that may not have arrived, and the number of those that have.
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

// Hashing the node alone suffices: two Hellos of one node are rare.
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

// The approximate size of a message in bytes. Values of the workers' store and texts of questions may be large.
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
  // Call it for each outgoing message, even if it cannot be sent now. Counts and stores the message; a Ping or Pong gets the
  // count of received messages.
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
    kept_.clear();  // the session cannot be resumed any more; losing the node is better than storing more
    kept_weight_ = 0;
    broken_ = true;
  }
  // Call it for each incoming message. Returns false if the message is only for the session, not for the state machine.
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
  // A Received to send now, if more than kConfirmedAfter bytes are unconfirmed. The other end can then drop those messages.
  std::optional<Received> confirmation() {
    if (unconfirmed_ < kConfirmedAfter) return std::nullopt;
    unconfirmed_ = 0;
    return Received{received_};
  }

  std::uint64_t received() const { return received_; }
  // Call it with the other end's count of received messages. Returns false if the session cannot be resumed from there.
  bool resume(std::uint64_t had) {
    forget(had);
    return !broken_ && had <= said_ && said_ - had == kept_.size();
  }
  // The messages to send again, in order.
  const std::vector<Out>& missing() const { return kept_; }

 private:
  // Usual number of messages between two confirmations. With room for four, the memory of 100 confirmed sessions went back to
  // the kernel, and the next failure began with 33 page faults.
  static constexpr std::size_t kOfARound = 2;
  static constexpr std::size_t kMostKept = 128u << 20;      // bytes
  static constexpr std::size_t kConfirmedAfter = 1u << 20;  // bytes

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
