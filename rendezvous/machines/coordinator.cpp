// Implementation of coordinator.hpp, first part: who is here. Links, presence, losses, and time.
#include "rendezvous/machines/coordinator.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/exit_code.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr milliseconds kHelloTimeout{5000};
constexpr std::size_t kRememberedNodes = 4096;  // whose losses are counted

}  // namespace

std::size_t Coordinator::HashId::operator()(const NodeId& id) const {
  std::size_t hash = 0;
  std::memcpy(&hash, id.data(), sizeof(hash));
  return hash;
}

Coordinator::Coordinator(CoordinatorSettings settings, const Authority& authority, Now now)
    : settings_(std::move(settings)), now_(now), term_(authority.term), elected_(authority.elected) {
  current_ = authority.known.current;
  previous_ = authority.known.previous;
  if (settings_.rules.budget_is_inherited) budget_ = authority.known.budget;
  last_round_ = std::max(current_.id.round, previous_.id.round);
  if (current_.exists()) {  // quorum.hpp: inherited rounds are released again
    if (authority.roster.origin == current_.origin()) {
      for (std::size_t rank = 0; rank < authority.roster.nodes.size(); ++rank) {
        inherited_ranks_.emplace(authority.roster.nodes[rank], static_cast<std::int32_t>(rank));
      }
    }
    if (settings_.rules.inherited_rounds_are_renewed) current_.id.term = term_;
    committed_ = false;
  }
  installed_current_ = Tally(current_.nodes);
  installed_previous_ = Tally(previous_.nodes);
  release_.id = current_.id;
  release_.born = current_.born;
  release_.nodes = current_.nodes;
  release_.budget = budget_;
  stays_until_ = now_.steady + part_of(settings_.lease, settings_.rules.authority);
  gather(current_.exists() ? settings_.regroup_call : settings_.last_call);
}

std::vector<CoordinatorAction> Coordinator::on(const CoordinatorEvent& event, Now now) {
  now_ = now;
  if (phase_ == Phase::kSteppedDown) return {};
  // Nothing that was asked after its authority ended may be answered.
  check_authority();
  if (phase_ == Phase::kSteppedDown) return std::exchange(actions_, {});
  std::visit(
      [this](const auto& concrete) {
        using Event = std::decay_t<decltype(concrete)>;
        if constexpr (std::is_same_v<Event, coordinator_event::Opened>) {
          strangers_.insert(concrete.link);
          hello_due_.emplace_back(now_.steady + kHelloTimeout, concrete.link);
        } else if constexpr (std::is_same_v<Event, coordinator_event::Closed>) {
          strangers_.erase(concrete.link);
          if (Peer* peer = peer_of(concrete.link)) lose(*peer, "closed its connection");
        } else if constexpr (std::is_same_v<Event, coordinator_event::Tick>) {
          tick();
        } else if (const auto* hello = std::get_if<Hello>(&concrete.message); hello && strangers_.contains(concrete.link)) {
          greet(concrete.link, *hello);
        } else if (Peer* peer = peer_of(concrete.link)) {
          peer->heard = now_.steady;
          by_age_.splice(by_age_.end(), by_age_, peer->age);
          std::visit([&](const auto& message) { hear(*peer, message); }, concrete.message);
        } else if (strangers_.contains(concrete.link)) {
          close(concrete.link);
        }
      },
      event);
  return std::exchange(actions_, {});
}

// ---- messages that concern presence ----

void Coordinator::hear(Peer& peer, const Leave&) {
  // What failed leaves with it, so there is nothing to judge: the others go on.
  if (phase_ == Phase::kEnding && failure_ && failure_->cause == FailureCause::kDevice) members_changed_ = true;
  peer.departed = true;
  note_installed(peer);  // it votes for nobody any more
  const LinkId link = *peer.link;
  lose(peer, "left");
  close(link);
}

void Coordinator::hear(Peer& peer, const Ping& message) {
  if (!peer.welcome) return;
  if (message.echo > 0 && message.echo <= stamp_of(now_.steady)) peer.answered = std::max(peer.answered, message.echo);
  if (message.installed == current_.id && current_.exists()) note_installed(peer);
  answer(peer, message.stamp);
  if (grant() <= part_of(settings_.lease, settings_.rules.start_with)) {
    short_answers_.insert_or_assign(peer.hello.node, message.stamp);
  } else {
    short_answers_.erase(peer.hello.node);
    answer_again();
  }
}

nanoseconds Coordinator::grant() const {
  const nanoseconds left = settings_.rules.grants_need_majority ? authority_end() - now_.steady : nanoseconds(settings_.lease);
  return std::clamp(left, nanoseconds{0}, part_of(settings_.lease, settings_.rules.grant));
}

void Coordinator::answer(const Peer& peer, std::int64_t stamp) {
  send(peer, Pong{.echo = stamp,
                  .stamp = stamp_of(now_.steady),
                  .realtime_ns = now_.realtime_ns,
                  .grant_ns = grant().count(),
                  .committed = committed_ ? current_.id : RoundId{}});
}

// Who asked before a majority had answered, as the coordinator's own node does, must not wait with its workers until it asks
// next.
void Coordinator::answer_again() {
  for (const auto& [id, stamp] : std::exchange(short_answers_, {})) {
    const auto found = peers_.find(id);
    if (found != peers_.end() && found->second.link && found->second.welcome) answer(found->second, stamp);
  }
}

void Coordinator::hear(Peer& peer, const StoreAsk& message) {
  if (phase_ == Phase::kRunning || phase_ == Phase::kSaving) {
    if (message.round == current_.id) act(coordinator_action::ServeStore{*peer.link, message});
  }
}

// ---- losing nodes ----

void Coordinator::close_and_lose(Peer& peer, const std::string& why) {
  const LinkId link = *peer.link;
  lose(peer, why);
  close(link);
}

void Coordinator::lose(Peer& peer, const std::string& why) {
  const NodeId id = peer.hello.node;
  set_ready(peer, false);
  links_.erase(*peer.link);
  by_age_.erase(peer.age);
  awaited_.erase(id);
  if (const auto holder = rank_holders_.find(peer.hello.wanted_group_rank);
      holder != rank_holders_.end() && holder->second == id) {
    rank_holders_.erase(holder);
  }
  unanswered_.erase(id);
  if (unsaved_.erase(id) > 0 && !peer.departed) all_saved_ = false;
  peer.link.reset();
  const bool was_welcome = std::exchange(peer.welcome, false);
  const bool in_round = peer.rank >= 0;
  if (was_welcome && phase_ != Phase::kOver) {
    say(Notice::Kind::kLost, name_of(peer.hello) + " " + why, std::ssize(by_age_), settings_.max_nodes);
    if (!peer.departed && id != settings_.self) note_loss(id);
  }
  if (in_round && phase_ == Phase::kRunning) {
    --seated_;
    if (!peer.done && settings_.rules.lost_members_end_round) {
      return end_round(OverReason::kMembershipChange, name_of(peer.hello) + " " + why, Others::kHold);
    }
  }
  if (in_round && phase_ == Phase::kEnding && !peer.departed) members_changed_ = true;
  if (!in_round && peer.previous_rank < 0) peers_.erase(id);  // `peer` is gone from here on
  check_ended();
  check_saving();
  check_done();
  consider();
}

void Coordinator::note_loss(const NodeId& id) {
  if (losses_.size() >= kRememberedNodes) losses_.erase(losses_.begin());
  Losses& losses = losses_[id];
  std::erase_if(losses.times, [&](Time time) { return time + settings_.flap_window < now_.steady; });
  losses.times.push_back(now_.steady);
  if (std::ssize(losses.times) < settings_.flaps) return;
  losses.times.clear();
  losses.set_aside_until = now_.steady + settings_.cool_down;
  say(Notice::Kind::kSetAside, "lost too often", settings_.cool_down.count());
}

void Coordinator::drop_silent() {
  const nanoseconds patience = part_of(settings_.lease, settings_.rules.give_up);
  while (!by_age_.empty() && phase_ != Phase::kSteppedDown) {
    Peer& oldest = peers_.at(by_age_.front());
    if (oldest.heard + patience > now_.steady) return;
    close_and_lose(oldest, "was not heard of for " + std::to_string(settings_.lease.count()) + " ms");
  }
}

void Coordinator::tick() {
  drop_silent();
  while (!hello_due_.empty() && hello_due_.front().first <= now_.steady) {
    if (strangers_.contains(hello_due_.front().second)) close(hello_due_.front().second);
    hello_due_.pop_front();
  }
  const auto due = [&](std::optional<Time>& time) {
    if (!time || *time > now_.steady) return false;
    time.reset();
    return true;
  };
  if (phase_ == Phase::kOver) {
    if (due(linger_ends_) || by_age_.empty()) {
      phase_ = Phase::kSteppedDown;
      act(coordinator_action::Finished{});
    }
    return;
  }
  if (due(pause_ends_) && phase_ == Phase::kPausing) gather(milliseconds{0});
  if (due(absorb_at_) && phase_ == Phase::kRunning && spares_ready() > 0 && done_ == 0) {
    const auto count = spares_ready();
    end_round(OverReason::kMembershipChange, std::to_string(count) + (count == 1 ? " node" : " nodes") + " joined",
              Others::kHold);
  }
  consider();
  if (phase_ == Phase::kGathering && due(join_ends_)) {
    finish(static_cast<int>(ExitCode::kPeersMissing), std::to_string(ready_) + " of at least " +
                                                          std::to_string(settings_.min_nodes) + " nodes came within " +
                                                          std::to_string(settings_.join_timeout.count() / 1000) + " s");
  }
}

std::optional<Time> Coordinator::next_deadline() const {
  if (phase_ == Phase::kSteppedDown) return std::nullopt;
  std::optional<Time> next;
  const auto consider_time = [&](const std::optional<Time>& time) {
    if (time && (!next || *time < *next)) next = time;
  };
  if (!by_age_.empty()) {
    consider_time(peers_.at(by_age_.front()).heard + part_of(settings_.lease, settings_.rules.give_up));
  }
  if (!hello_due_.empty()) consider_time(hello_due_.front().first);
  if (phase_ == Phase::kOver) {
    consider_time(by_age_.empty() ? std::optional<Time>(now_.steady) : linger_ends_);
    return next;
  }
  if (current_.exists() && settings_.rules.grants_need_majority) {
    consider_time(std::max(authority_end(), stays_until_));
  }
  if (phase_ == Phase::kPausing) consider_time(pause_ends_);
  if (phase_ == Phase::kRunning) consider_time(absorb_at_);
  if (phase_ == Phase::kGathering) {
    // One that is over already waits for something else: whose event looks at it again.
    if (call_ends_ && *call_ends_ > now_.steady) consider_time(call_ends_);
    consider_time(join_ends_);
  }
  return next;
}

// ---- small things ----

void Coordinator::set_ready(Peer& peer, bool ready) {
  if (peer.ready == ready) return;
  peer.ready = ready;
  ready_ += ready ? 1 : -1;
}

bool Coordinator::knows(const Address& address) const {
  return std::any_of(by_age_.begin(), by_age_.end(), [&](const NodeId& id) { return peers_.at(id).hello.listens == address; });
}

Coordinator::Peer* Coordinator::peer_of(LinkId link) {
  const auto found = links_.find(link);
  return found == links_.end() ? nullptr : &peers_.at(found->second);
}

void Coordinator::send(const Peer& peer, FromCoordinator message) {
  if (peer.link) act(coordinator_action::Send{*peer.link, std::move(message)});
}

void Coordinator::say(Notice::Kind kind, std::string text, std::int64_t count, std::int64_t of) {
  act(coordinator_action::Say{Notice{.kind = kind, .text = std::move(text), .count = count, .of = of}});
}

void Coordinator::close(LinkId link) {
  strangers_.erase(link);
  act(coordinator_action::Close{link});
}

}  // namespace ddprun::rendezvous
