// A session between a member and its coordinator, which survives a reset of its connection.
//
// The problem. Networks reset connections that neither side has closed: a NAT or firewall drops its entry, or a route changes.
// Without sessions, each reset ended the round for all nodes, and after four resets within a minute the node was locked out.
// TCP does not solve this: after a reset, the sender cannot determine which of its last messages arrived. If it sends these
// messages again, an `add` to the workers' key-value store may be executed twice. If it does not, a Ready message may be lost,
// and all nodes wait.
//
// The idea. Each end counts the messages that it sends and receives, and keeps copies of the sent messages that the other end
// has not confirmed. After a reset, the member dials again immediately. It identifies the session by the Hello that opened the
// session. Both ends exchange their counts of received messages, and send the missing messages again. So each message arrives
// once and in order.
//
// Example: the coordinator sends messages 1 to 9, and the connection is reset when the member has received 7. The member dials
// again and sends Resume{received = 7}. The coordinator drops messages up to 7, answers Resumed with its own count, and sends 8
// and 9. The reset is invisible to the state machines of both nodes.
//
// Messages carry no sequence numbers. A connection preserves the order of messages, so each end numbers them by counting. Hence
// the messages of a session must not be reordered, not even in the queue that waits for the disk (record_gate.hpp). Ping and
// Pong are not counted: they are sent again periodically, a late copy is worthless, and they carry the confirmations. Hello,
// Welcome and votes are not counted, because no session is open when they are sent.
//
// After a reset, a session waits for a new connection for a fifth of the lease, and at most one second (Rules::resume). Then
// the link is closed, and the node is lost. This wait is shorter than the silence that a lease tolerates, so no lease ends
// because of it. If a process ends, its kernel closes the connection without a reset, and no new connection is possible. So the
// loss of a process is detected immediately, as without sessions.
//
// The cost. For each node, the coordinator keeps about 1 KB of messages per round, until the next ping confirms them. Large
// store values are confirmed sooner. If the unconfirmed messages of an end exceed 128 MiB, the session can no longer be
// resumed.
//
// Alternative considered: a member repeats its state in a new Hello, without counts. Then each type of message would need a
// separate rule for its loss, and the store's `add` would need sequence numbers anyway.
//
// This file implements one end of one session. leader_session.hpp uses it for a member's end, and member_sessions.hpp uses it
// for all ends of a coordinator. The code is pure: no I/O, no clock. The class owns the unconfirmed messages and both counts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

// Hashes only the node id. That is enough, because a node rarely has two sessions.
struct HashSessionId {
  std::size_t operator()(const SessionId& id) const { return HashNodeId()(id.node); }
};

template <class Variant>
bool belongs_to_session(const Variant& message) {
  return std::visit(
      [](const auto& concrete) {
        using M = std::decay_t<decltype(concrete)>;
        constexpr bool kIsGreeting = std::is_same_v<M, Hello> || std::is_same_v<M, Welcome> || std::is_same_v<M, Refused> ||
                                     std::is_same_v<M, Redirect> || std::is_same_v<M, Vote> || std::is_same_v<M, VoteRequest>;
        constexpr bool kIsSessionControl =
            std::is_same_v<M, Resume> || std::is_same_v<M, Resumed> || std::is_same_v<M, Received>;
        return !kIsGreeting && !kIsSessionControl && !std::is_same_v<M, Ping> && !std::is_same_v<M, Pong>;
      },
      message);
}

// Returns the approximate size of a message in bytes. Only store values and the texts of queries can be large.
template <class Variant>
std::size_t approximate_size(const Variant& message) {
  static constexpr std::size_t kBaseSize = 256;
  return std::visit(
      [](const auto& concrete) {
        using M = std::decay_t<decltype(concrete)>;
        if constexpr (std::is_same_v<M, StoreQuery>) {
          return kBaseSize + concrete.request.value.size() + concrete.request.expected.size();
        } else if constexpr (std::is_same_v<M, StoreAnswer>) {
          return kBaseSize + concrete.reply.value.size();
        } else if constexpr (requires { concrete.text.size(); }) {
          return kBaseSize + concrete.text.size();
        } else {
          return kBaseSize;
        }
      },
      message);
}

template <class Out, class In>
class SessionEnd {
 public:
  // Call this for each outgoing message, even if there is no connection now. Counts the message and keeps a copy until the
  // other end confirms it. In a Ping or Pong, sets the count of received messages.
  void send(Out& message) {
    if constexpr (std::is_same_v<Out, FromMember>) {
      if (auto* ping = std::get_if<Ping>(&message)) ping->received = received_;
    } else {
      if (auto* pong = std::get_if<Pong>(&message)) pong->received = received_;
    }
    if (!belongs_to_session(message)) return;
    ++sent_;
    kept_bytes_ += approximate_size(message);
    if (kept_.empty()) kept_.reserve(kUsualMessages);
    kept_.push_back(message);
    if (kept_bytes_ <= kMaxKeptBytes) return;
    kept_.clear();  // From now on the session cannot be resumed. The loss of one node is better than unlimited memory.
    kept_bytes_ = 0;
    broken_ = true;
  }
  // Call this for each incoming message. Returns false if the message is only for the session. The caller must then not pass
  // it to the state machine.
  bool receive(const In& message) {
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
      unconfirmed_ += approximate_size(message);
    }
    return true;
  }
  // Returns the confirmation to send now; nullopt if fewer than kConfirmedAfter received bytes are unconfirmed. After the
  // confirmation, the other end can drop its copies of these messages.
  std::optional<Received> confirmation() {
    if (unconfirmed_ < kConfirmedAfter) return std::nullopt;
    unconfirmed_ = 0;
    return Received{received_};
  }

  std::uint64_t received() const { return received_; }
  // `acknowledged` is the other end's count of received messages. Returns false if this end no longer has copies of all later
  // messages, so that the session cannot be resumed.
  bool resume(std::uint64_t acknowledged) {
    forget(acknowledged);
    return !broken_ && acknowledged <= sent_ && sent_ - acknowledged == kept_.size();
  }
  // the sent messages that the other end has not received, in order
  const std::vector<Out>& missing() const { return kept_; }

 private:
  // The usual number of messages between two confirmations, used as the reserved capacity. With a capacity of four, the
  // messages of 100 sessions took so much memory that the allocator returned this memory to the kernel when they were freed.
  // So the handling of the next failure started with 33 page faults.
  static constexpr std::size_t kUsualMessages = 2;
  static constexpr std::size_t kMaxKeptBytes = 128u << 20;  // bytes
  static constexpr std::size_t kConfirmedAfter = 1u << 20;  // bytes

  void forget(std::uint64_t acknowledged) {
    const std::uint64_t forgotten = sent_ - kept_.size();
    if (acknowledged <= forgotten) return;
    const std::size_t count = std::min<std::size_t>(acknowledged - forgotten, kept_.size());
    for (std::size_t i = 0; i < count; ++i) kept_bytes_ -= approximate_size(kept_[i]);
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(count));
    if (kept_.empty()) std::vector<Out>().swap(kept_);
  }

  std::vector<Out> kept_;
  std::size_t kept_bytes_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::size_t unconfirmed_ = 0;
  bool broken_ = false;
};

}  // namespace ddprun::rendezvous
