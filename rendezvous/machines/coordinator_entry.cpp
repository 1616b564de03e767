// Implementation of coordinator.hpp, fifth part: who says hello, and whether there is a place for it.
#include <algorithm>
#include <utility>

#include "rendezvous/machines/coordinator.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr std::uint64_t kLargestTerm = std::uint64_t{1} << 62;
constexpr std::int64_t kLargestRound = std::int64_t{1} << 62;

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

std::string Coordinator::name_of(const Hello& hello) {
  return hello.hostname.empty() ? "a node without a name" : hello.hostname;
}

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

}  // namespace ddprun::rendezvous
