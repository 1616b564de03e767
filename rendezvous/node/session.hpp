// What a member and its coordinator say to each other outlives the connection that carries it. A network that resets
// connections (a NAT or firewall that forgets, a route that moves) would otherwise cost everybody's round. The side that
// dialled dials again at once and names the session; both say how much they have had, and say again what is missing: each
// message comes once, and in order. Nothing else is told of it, unless nobody comes back within a moment (Rules::resume): then
// the link is closed.
//
// This file is one end of one session; leader_session.hpp is a member's, member_sessions.hpp a coordinator's. Pure. It owns
// what was said and may not have come, and how much has come.
//
// Note: what needs no second time. A ping and its answer are worth nothing later and come again anyway; they say how much was
// had. Whatever belongs to greetings and elections comes before a session, or beside it.
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

// The hello that opened it: a node says each once.
struct SessionId {
  NodeId node{};
  std::uint64_t incarnation = 0;
  std::uint64_t attempt = 0;
  auto operator<=>(const SessionId&) const = default;
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

// About its size, since values of the workers' store may be large.
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
        } else {
          return kOfAny;
        }
      },
      message);
}

template <class Out, class In>
class SessionEnd {
 public:
  // What goes out, on its way or not.
  void say(Out& message) {
    if constexpr (std::is_same_v<Out, FromMember>) {
      if (auto* ping = std::get_if<Ping>(&message)) ping->received = received_;
    } else {
      if (auto* pong = std::get_if<Pong>(&message)) pong->received = received_;
    }
    if (!belongs_to_session(message)) return;
    ++said_;
    kept_weight_ += weight_of(message);
    kept_.push_back(message);
    if (kept_weight_ <= kMostKept) return;
    kept_.clear();  // who hears nothing for so long is better lost
    kept_weight_ = 0;
    broken_ = true;
  }
  // False: it is the session's own affair.
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
  // To be said now, so that the other side need not keep so much.
  std::optional<Received> confirmation() {
    if (unconfirmed_ < kConfirmedAfter) return std::nullopt;
    unconfirmed_ = 0;
    return Received{received_};
  }

  std::uint64_t received() const { return received_; }
  // The other side has had that many. False: it can't go on from there.
  bool resume(std::uint64_t had) {
    forget(had);
    return !broken_ && had <= said_ && said_ - had == kept_.size();
  }
  // What it has not had, in order.
  const std::vector<Out>& missing() const { return kept_; }

 private:
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
