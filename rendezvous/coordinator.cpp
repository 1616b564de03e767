// Implementation of coordinator.hpp, first part: who is here. Links, hellos, losses, duplicates, and the term.
#include "rendezvous/coordinator.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/exit_code.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr milliseconds kHelloTimeout{5000};
constexpr std::size_t kRememberedNodes = 4096;  // whose losses are counted
constexpr std::uint64_t kLargestTerm = std::uint64_t{1} << 62;
constexpr std::int64_t kLargestRound = std::int64_t{1} << 62;

std::string name_of(const Hello& hello) {
  return hello.hostname.empty() ? "a node without a name" : hello.hostname;
}

bool makes_sense(const Config& config) {
  return config.nodes >= 0 && config.nodes <= kMaxNodes && config.rank >= -1 && config.rank < std::max(config.nodes, 1) &&
         config.id.term <= kLargestTerm && config.born <= config.id.term && config.id.round >= -1 &&
         config.id.round <= kLargestRound;
}

bool makes_sense(const Standing& standing) {
  return standing.promised_term <= kLargestTerm && makes_sense(standing.current) && makes_sense(standing.previous) &&
         standing.current.id.term <= standing.promised_term && standing.budget.restart_count >= 0 && standing.budget.used >= 0;
}

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

// ---- hello ----

void Coordinator::greet(LinkId link, const Hello& hello) {
  if (phase_ == Phase::kOver) {
    act(coordinator_action::Send{link, over_});
    return close(link);
  }
  if (!acceptable(link, hello) || phase_ == Phase::kSteppedDown || !make_place(link, hello)) return;

  strangers_.erase(link);
  Peer& peer = peers_[hello.node];
  // Its ranks as it remembers them. One that is known stays: another hello may be from before it had heard of the round.
  for (const Config& remembered : {hello.standing.current, hello.standing.previous}) {
    if (!remembered.exists()) continue;
    if (remembered.origin() == current_.origin()) peer.rank = std::max(peer.rank, remembered.rank);
    if (previous_.exists() && remembered.origin() == previous_.origin()) {
      peer.previous_rank = std::max(peer.previous_rank, remembered.rank);
    }
  }
  if (const auto inherited = inherited_ranks_.find(hello.node); inherited != inherited_ranks_.end()) {
    peer.rank = inherited->second;
  }
  peer.hello = hello;
  peer.link = link;
  peer.order = next_order_++;
  peer.welcome = false;
  peer.ready = false;
  peer.master_port = hello.master_port;
  peer.heard = now_.steady;
  peer.age = by_age_.insert(by_age_.end(), hello.node);
  links_.emplace(link, hello.node);
  if (hello.wanted_group_rank >= 0) rank_holders_.try_emplace(hello.wanted_group_rank, hello.node);
  last_round_ = std::max(last_round_, hello.standing.current.id.round);

  // Before the first round nobody can have been elected: a later term is free to be taken.
  if (hello.standing.promised_term > term_) term_ = hello.standing.promised_term + 1;
  welcome(peer);
}

bool Coordinator::acceptable(LinkId link, const Hello& hello) {
  const auto refuse = [&](Refusal reason, const std::string& text, std::int64_t retry_after_ms = 0) {
    act(coordinator_action::Send{link, Refused{.reason = reason, .text = text, .retry_after_ms = retry_after_ms}});
    say(Notice::Kind::kRefused, name_of(hello) + ": " + text);
    close(link);
    return false;
  };
  if (hello.protocol != kProtocolVersion) {
    return refuse(Refusal::kVersion, "this agent speaks version " + std::to_string(hello.protocol) +
                                         " of the rendezvous, the coordinator version " + std::to_string(kProtocolVersion) +
                                         "; install the same ddprun on both");
  }
  if (hello.run != settings_.run) {
    return refuse(Refusal::kRun, "the job at this address has another run id; give every node the same --rdzv-id");
  }
  if (hello.local_world_size < 1 || hello.local_world_size > kMaxWorkersPerNode || hello.wanted_group_rank < -1 ||
      hello.wanted_group_rank >= settings_.max_nodes || !makes_sense(hello.standing)) {
    return refuse(Refusal::kBadHello, "it asks for node rank " + std::to_string(hello.wanted_group_rank) + " of " +
                                          std::to_string(settings_.max_nodes) + " with " +
                                          std::to_string(hello.local_world_size) + " workers; expected a rank from 0 to " +
                                          std::to_string(settings_.max_nodes - 1) + " and 1 to " +
                                          std::to_string(kMaxWorkersPerNode) + " workers");
  }
  if (const auto known = losses_.find(hello.node); known != losses_.end() && known->second.set_aside_until > now_.steady) {
    const auto wait = std::chrono::ceil<milliseconds>(known->second.set_aside_until - now_.steady);
    return refuse(Refusal::kSetAside, "it was lost too often and is set aside for " + std::to_string(wait.count()) + " ms",
                  wait.count());
  }
  if (hello.coordinates) {
    receive_visit(link, hello);
    return false;
  }
  // Who knows a round of a later coordinator, or a round where we know none, knows more than we do.
  const RoundId& known = hello.standing.current.id;
  const bool knows_more = hello.standing.current.exists() && (known.term > term_ || (!current_.exists() && !elected_));
  const bool promised_more = hello.standing.promised_term > term_ && current_.exists();
  if (promised_more || knows_more) {
    act(coordinator_action::StepDown{
        .why = name_of(hello) + " knows of a later round", .term = hello.standing.promised_term, .leader = {}});
    phase_ = Phase::kSteppedDown;
    return false;
  }
  return true;
}

// Two coordinators, of which the later term is right; but one that never had a round yields to any that has.
void Coordinator::receive_visit(LinkId link, const Hello& hello) {
  const bool never_began = !current_.exists() && hello.standing.current.exists();
  if (hello.standing.promised_term > term_ || never_began) {
    act(coordinator_action::StepDown{
        .why = name_of(hello) + " coordinates a later term", .term = hello.standing.promised_term, .leader = hello.listens});
    phase_ = Phase::kSteppedDown;
    return;
  }
  const auto self = peers_.find(settings_.self);
  const Address here = self == peers_.end() ? Address{} : self->second.hello.listens;
  act(coordinator_action::Send{link, Redirect{.term = term_, .coordinator = here}});
  close(link);
}

// One place for each identity and each wanted rank.
bool Coordinator::make_place(LinkId link, const Hello& hello) {
  const auto found = peers_.find(hello.node);
  if (found != peers_.end() && found->second.hello.incarnation == hello.incarnation &&
      found->second.hello.attempt > hello.attempt) {
    close(link);  // said before the one that was heard already, over a connection that was slower
    return false;
  }
  if (found != peers_.end() && found->second.link && settings_.rules.later_process_replaces) {
    if (hello.incarnation < found->second.hello.incarnation) {
      act(coordinator_action::Send{
          link, Refused{.reason = Refusal::kReplaced, .text = "a later process with the identity of this node has joined"}});
      close(link);
      return false;
    }
    if (hello.incarnation > found->second.hello.incarnation) {
      send(found->second,
           Refused{.reason = Refusal::kReplaced, .text = "a later process with the identity of this node has joined"});
    }
    close_and_lose(found->second, "came back over another connection");
  } else if (found != peers_.end() && found->second.link) {
    by_age_.erase(found->second.age);  // broken on purpose: the older connection still counts
    links_.erase(*found->second.link);
    awaited_.erase(hello.node);
    if (found->second.ready) --ready_;
  }
  if (phase_ == Phase::kSteppedDown) return false;
  if (hello.wanted_group_rank < 0 || settings_.min_nodes != settings_.max_nodes) return true;
  const auto holder = rank_holders_.find(hello.wanted_group_rank);
  if (holder == rank_holders_.end() || holder->second == hello.node) return true;
  const std::string text = "node rank " + std::to_string(hello.wanted_group_rank) + " is taken by " +
                           name_of(peers_.at(holder->second).hello) + "; give every node its own --node-rank";
  act(coordinator_action::Send{link, Refused{.reason = Refusal::kRankTaken, .text = text}});
  say(Notice::Kind::kRefused, name_of(hello) + ": " + text);
  close(link);
  return false;
}

void Coordinator::welcome(Peer& peer) {
  peer.welcome = true;
  send(peer, Welcome{.term = term_,
                     .coordinator = settings_.self,
                     .lease_ms = settings_.lease.count(),
                     .job = peer.hello.wants_job ? settings_.job : std::string()});
  say(Notice::Kind::kJoined, name_of(peer.hello), std::ssize(by_age_), settings_.max_nodes);
  const Standing& told = peer.hello.standing;
  if (previous_.exists() && told.current.origin() == current_.origin() && !told.previous.exists()) {
    forget_previous();  // the membership was known to be committed before this coordinator was
  }
  if (peer.hello.node == settings_.self && release_.coordinator.address.port == 0) {
    release_.coordinator = {.group_rank = peer.rank, .node = settings_.self, .address = peer.hello.listens};
  }
  if (current_.exists()) {  // everybody must know of it before it can count as committed
    if (peer.hello.standing.current.id == current_.id) {
      note_installed(peer);
    } else if (peer.hello.standing.current.id < current_.id) {
      Release known = release_for(peer);
      known.start = false;
      send(peer, std::move(known));
    }
  }
  const bool has_workers = peer.hello.workers == Workers::kRunning || peer.hello.workers == Workers::kStopping;
  if (has_workers) {
    peer.owes_ready = peer.hello.workers_round;
    awaited_.insert(peer.hello.node);
  } else {
    set_ready(peer, true);
  }
  consider();
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
      return end_round(OverReason::kMembershipChange, name_of(peer.hello) + " " + why);
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
    end_round(OverReason::kMembershipChange, std::to_string(count) + (count == 1 ? " node" : " nodes") + " joined");
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
