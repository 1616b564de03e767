// The part of World (simulated_world.hpp) that checks the invariants at every event.
#include <algorithm>
#include <utility>

#include "common/base/exit_code.hpp"
#include "rendezvous/wire/codec.hpp"
#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {

// At most one coordinator per term.
void World::check_coordinator(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  const Coordinator* coordinator = agent.node->coordinator();
  if (coordinator == nullptr) {
    agent.coordinates = false;
    return;
  }
  if (agent.coordinates && agent.term_seen == coordinator->term()) return;
  if (!agent.gate.promise_is_written()) return;  // it cannot have informed any node
  if (!agent.coordinates) ++result_.successions;
  if (std::exchange(agent.heard_farewell, false)) ++result_.by_farewell;
  agent.coordinates = true;
  agent.term_seen = coordinator->term();
  tell(name(index) + " coordinates term " + std::to_string(agent.term_seen));
  const auto [known, is_new] = leader_of_term_.try_emplace(agent.term_seen, index, agent.life);
  if (!is_new && known->second != std::pair(index, agent.life)) {
    // Of two jobs, where a spare has promised the one what the other's was: docs/rendezvous.md promises nothing then.
    result_.excused = std::ssize(agents_) > max_nodes_ && agent.term_seen >> 20U != 0;
    if (result_.excused) return;
    violate("term " + std::to_string(agent.term_seen) + " has two coordinators: agents " + std::to_string(known->second.first) +
            " and " + std::to_string(index));
  }
}

// Every node gets the same release of a round, each rank is assigned once, and ranks are contiguous.
void World::note_release(int index, std::uint32_t life, const Release& release, int coordinator) {
  Round& round = rounds_[release.id];
  if (round.coordinator < 0) {
    released_.push_back(release.id);
    round.coordinator = coordinator;
    round.leadership = agents_[static_cast<std::size_t>(coordinator)].life;
    round.first = release;
    const auto before = rounds_.find(release.previous.origin());
    if (!release.previous.exists()) round.job = release.id;
    if (release.previous.exists() && before != rounds_.end()) round.job = before->second.job;
    if (release.budget.restart_count > max_restarts_) {
      violate("round " + name(release.id) + " is restart " + std::to_string(release.budget.restart_count) + " of at most " +
              std::to_string(max_restarts_));
    }
    const auto failures = std::count_if(rounds_.begin(), rounds_.end(),
                                        [](const auto& one) { return one.second.worker_failed || one.second.may_have_failed; });
    if (release.budget.restart_count > failures) {
      violate("round " + name(release.id) + " counts " + std::to_string(release.budget.restart_count) + " restarts of " +
              std::to_string(failures) + " failures");
    }
    for (const auto& [id, other] : rounds_) {
      const bool began_anew = id.term >> 20U != release.id.term >> 20U;  // the lost state includes the budget
      if (other.full && !began_anew && id < release.id && other.first.budget.restart_count > release.budget.restart_count) {
        violate("round " + name(release.id) + " forgets restarts of round " + name(id));
      }
    }
  }
  const Release& first = round.first;
  if (first.nodes != release.nodes || first.world_size != release.world_size || first.master != release.master ||
      first.budget.restart_count != release.budget.restart_count) {
    violate("nodes were told different things of round " + name(release.id));
  }
  if (release.group_rank < 0 || release.group_rank >= release.nodes) {
    violate("round " + name(release.id) + " has group rank " + std::to_string(release.group_rank) + " of " +
            std::to_string(release.nodes));
  }
  const auto [member, is_new] = round.members.try_emplace(release.group_rank, index);
  if (!is_new && member->second != index) violate("round " + name(release.id) + " gives a rank twice");
  round.offsets[release.group_rank] = release.rank_offset;
  round.lives[release.group_rank] = life;
  if (std::ssize(round.members) != release.nodes || !is_new) return;
  std::int32_t next = 0;
  std::set<std::pair<int, std::uint32_t>> seen;  // for a moment, a dead process and its successor may both be in it
  for (const auto& [rank, agent] : round.members) {
    if (!seen.emplace(agent, round.lives[rank]).second && !agents_[static_cast<std::size_t>(agent)].gave_up)
      violate(name(agent) + " is twice in round " + name(release.id));
    if (round.offsets[rank] != next) violate("ranks of round " + name(release.id) + " are not contiguous");
    next += agents_[static_cast<std::size_t>(agent)].local_world_size;
  }
  if (next != release.world_size) violate("round " + name(release.id) + " has ranks that nobody has");
  check_failure_is_known(round);
}

// Never two rounds at the same time: not of two coordinators, not on disjoint memberships, and no node of the newer round in
// the older. Workers count, even if their agent is dead.
void World::check_training(int index) {
  const RoundId own_id = agents_[static_cast<std::size_t>(index)].round;
  for (auto& [id, other] : rounds_) {
    if (id == own_id || other.training.empty()) continue;
    for (const int b : other.training) {
      if (trains(agents_[static_cast<std::size_t>(b)])) check_together(index, own_id, b, id);
    }
  }
  for (const Orphans& one : orphans_) {
    if (one.until > time_ && one.round != own_id) check_together(index, own_id, one.agent, one.round);
  }
}

// True if the node lost its memory with its container, and another node was unreachable during its query, which takes a lease.
// This is the only case for which docs/rendezvous.md promises nothing.
bool World::begun_by_who_forgot_alone(const RoundId& id) const {
  const int first = rounds_.at(id).coordinator;
  if (!in_containers_ || first < 0) return false;
  const Nanos asked = agents_[static_cast<std::size_t>(first)].asks_since;
  if (asked == kNever) return false;
  const auto away = [&](const Agent& agent) { return agent.disturbed_until > asked + kLease / 2; };
  return std::any_of(agents_.begin(), agents_.end(), away);
}

void World::check_together(int index, const RoundId& own_id, int b, const RoundId& id) {
  const Round& own = rounds_[own_id];
  const Round& other = rounds_[id];
  const std::string both = name(index) + " in round " + name(own_id) + ", " + name(b) + " in round " + name(id);
  const bool shared = std::any_of(own.members.begin(), own.members.end(), [&](const auto& mine) {
    return std::any_of(other.members.begin(), other.members.end(),
                       [&](const auto& theirs) { return theirs.second == mine.second; });
  });
  if (other.coordinator != own.coordinator || other.leadership != own.leadership) {
    // With spares the number of nodes elsewhere is unknown: docs/rendezvous.md promises nothing then.
    const bool began_anew = own_id.term >> 20U != id.term >> 20U || (own.job && other.job && own.job != other.job);
    const bool alone = begun_by_who_forgot_alone(own_id) || begun_by_who_forgot_alone(id);
    // Of the one before, whoever of it founds this one has no workers, so the others can end no step; their grants run out.
    if (began_anew && shared) return;
    if (began_anew && (std::ssize(agents_) > max_nodes_ || alone)) {
      result_.excused = true;
    } else {
      violate("rounds of two coordinators train at once: " + both);
    }
    return;
  }
  const Round& newer = own_id > id ? own : other;
  const int in_older = own_id > id ? b : index;
  for (const auto& [rank, agent] : newer.members) {
    if (agent == in_older) violate("a node trains in an older round than the one it is in: " + both);
  }
  const bool all_known = std::ssize(own.members) == own.first.nodes && std::ssize(other.members) == other.first.nodes;
  if (!shared && all_known) violate("disjoint rounds train at once: " + both);
}

// A worker failed, and another coordinator continues with the same processes: it must have counted the failure.
void World::check_failure_is_known(const Round& round) {
  const Config& previous = round.first.previous;
  const auto found = rounds_.find(previous.origin());
  if (!previous.exists() || found == rounds_.end()) return;
  const Round& last = found->second;
  // A round in between, which few nodes know, has counted it. And a node that never learned of its round has no known state.
  const bool follows = std::next(found) != rounds_.end() && std::next(found)->first == round.first.id;
  // A failure costs no restart if nodes were lost as well: workers fail when their peers are gone.
  if (!last.worker_failed || !last.full || !follows || !last.lost.empty() ||
      (last.coordinator == round.coordinator && last.leadership == round.leadership))
    return;
  const auto processes = [](const Round& of) {
    std::set<std::pair<int, std::uint32_t>> all;
    for (const auto& [rank, agent] : of.members) all.emplace(agent, of.lives.at(rank));
    return all;
  };
  if (processes(last) != processes(round) || last.first.budget.restart_count < round.first.budget.restart_count) return;
  violate("round " + name(round.first.id) + " knows nothing of the failure in round " + name(previous.origin()));
}

// ---- how rounds and the job end ----

void World::note_heard(int index, int sender, const FromMember& message) {
  if (agents_[static_cast<std::size_t>(index)].node->coordinator() == nullptr) return;
  // A coordinator without a round, or of an older round, does not matter for that round.
  const RoundId own = agents_[static_cast<std::size_t>(index)].node->coordinator()->round();
  const auto finished = [&](const RoundId& round) {
    if (round <= own) rounds_[round].finished.insert(sender);
  };
  if (const auto* done = std::get_if<Done>(&message)) finished(done->round);
  const auto* hello = std::get_if<Hello>(&message);
  const auto away = away_.find({index, sender});
  const bool is_the_same = away != away_.end() && away->second.second >= agents_[static_cast<std::size_t>(sender)].id_since;
  if (hello != nullptr && is_the_same) {  // the node has given up its previous connection
    away_.erase(away);
    note_lost(index, sender);
  }
  if (hello != nullptr && hello->workers == Workers::kDone) finished(hello->workers_round);
}

void World::note_lost(int index, int other) {
  const Coordinator* const leads = agents_[static_cast<std::size_t>(index)].node->coordinator();
  if (leads == nullptr) return;
  rounds_[leads->round()].lost.insert(other);
  tell(name(index) + " loses a connection of " + name(other));
}

void World::note_away(int index, int other, std::uint32_t life) {
  if (agents_[static_cast<std::size_t>(index)].node->coordinator() == nullptr) return;
  away_.try_emplace({index, other}, time_, life);
  tell(name(index) + " has a connection of " + name(other) + " reset");
}

void World::note_back(int index, int other) {
  away_.erase({index, other});
  const Coordinator* const leads = agents_[static_cast<std::size_t>(index)].node->coordinator();
  if (leads != nullptr) rounds_[leads->round()].lost.erase(other);  // the previous connection was closed
}

// No round ends without a reason: a node failed, was asked to stop, joined before any had finished, or was lost before it had
// finished.
void World::check_round_over(int index, const RoundId& id, const std::string& why) {
  const Round& round = rounds_[id];
  const auto seats = [&](int agent) {  // two ranks: one belongs to an earlier process, whose memory is lost but whose
                                       // connection is still open
    return std::count_if(round.members.begin(), round.members.end(), [&](const auto& seat) { return seat.second == agent; });
  };
  const auto unfinished = [&](int agent) { return !round.finished.contains(agent) || seats(agent) > 1; };
  const bool own_is_lost = why.starts_with("host" + std::to_string(index) + " ") && unfinished(index);
  const bool joined = why.ends_with(" joined") && round.finished.empty();
  if (round.failed || joined || own_is_lost || somebody_was_asked_to_stop_) return;
  if (std::any_of(round.lost.begin(), round.lost.end(), unfinished)) return;
  const auto given_up = [&](const auto& away) {
    const bool for_long = away.second.first + kResume <= time_ || why.find(" was not heard of for ") != std::string::npos;
    return away.first.first == index && unfinished(away.first.second) && for_long;
  };
  if (std::any_of(away_.begin(), away_.end(), given_up)) return;
  violate("round " + name(id) + " is ended without a reason: " + why);
}

// No node waits forever for the workers of others.
void World::check_waiting(Agent& agent) {
  const Coordinator* const leads = agent.node->coordinator();
  const bool alone = alive_ == 1;  // no other node could lead
  if (leads == nullptr || alone || !leads->waits_for().ends_with("nodes that stop their workers")) {
    agent.waits_since = 0;
  } else if (agent.waits_since == 0) {
    agent.waits_since = time_;
  } else if (time_ - agent.waits_since > 5 * kReadyTimeout / 2) {
    violate("a coordinator waits for " + leads->waits_for() + " for " + std::to_string((time_ - agent.waits_since) / kSecond) +
            " s");
  }
}

// A fault, of its own or of the coordinator, may have kept a node from learning the end of the job. Such a node may look for
// the others without result, or end alone. Also, a node that has saved after a signal ends by itself if its coordinator is
// gone: the job may continue elsewhere.
bool World::may_not_know_of_the_end(int index) const {
  // The last message may be in flight when a coordinator is killed. And a job that a signal ends during faults may end before a
  // cut-off node has dialed again.
  const Nanos finds_them = nodes_are_reclaimed_ ? 2 * kSecond : kResumeAtMost;
  const auto disturbed = [&](const Agent& agent) { return agent.disturbed_until + finds_them > job_over_at_; };
  const bool some_began_anew = memory_is_lost_ || farewell_was_said_;  // nodes that remember nothing (docs/rendezvous.md)
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  return ended_by_itself_ || some_began_anew || agent.outvoted || disturbed(agent) ||
         disturbed(agents_[static_cast<std::size_t>(decided_by_)]);
}

// With spares, enough nodes may be cut off from the job to start it again, as above.
bool World::begun_by_spares(const RoundId& id) const {
  return std::ssize(agents_) > max_nodes_ && id.term >> 20U != 0;
}

bool World::led_by_who_may_not_know(const RoundId& id) const {
  const auto round = rounds_.find(id);
  return round != rounds_.end() && round->second.coordinator >= 0 && may_not_know_of_the_end(round->second.coordinator);
}

void World::check_start_after_end(int index, const RoundId& id) {
  if (!job_over_ || begun_by_spares(id) || may_not_know_of_the_end(index)) return;
  if (!led_by_who_may_not_know(id)) violate(name(index) + " starts workers after the end of the job");
}

// If a node was training when all nodes got a signal, it has saved, or reports why not. A node that dies during the common save
// also ends that save, since no process holds its workers' state any more: that case is not promised.
void World::check_stopped(int index, const node_action::Finish& finish) {
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  const bool saved = finish.exit_code == static_cast<int>(ExitCode::kPreempted);
  const bool died_in_the_save = lost_amid_signals_ && finish.why.ends_with("before all could save");
  if (agent.must_save && !saved && !died_in_the_save) {
    violate(name(index) + " trained, and ends with " + std::to_string(finish.exit_code) + " after a signal: " + finish.why);
  }
  if (!saved && finish.why.empty()) violate(name(index) + " ends after a signal and does not say why");
}

// A node with the vote of the other node of two, which is dead, is a majority by itself in every election.
void World::check_minority(int index, const node_action::Finish& finish) {
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  const PersistentState& state = agent.node->member().state();
  if (finish.exit_code != static_cast<int>(ExitCode::kMinority) || !agent.has_both_votes_in) return;
  if (state.current.origin() != *agent.has_both_votes_in || state.previous.exists() ||
      agent.disturbed_until + 2 * kLease > time_)
    return;
  violate(name(index) + " ends as a minority, though it has the vote of the node that is dead");
}

// The job ends once.
void World::check_end(int index, const node_action::Finish& finish) {
  if (!job_over_ || finish.exit_code == result_.exit_code || may_not_know_of_the_end(index)) return;
  const Config& current = agents_[static_cast<std::size_t>(index)].node->member().state().current;
  if (!current.exists() || begun_by_spares(current.id) || led_by_who_may_not_know(current.id)) return;  // not part of the job
  violate(name(index) + " ends with " + std::to_string(finish.exit_code) + ", others with " +
          std::to_string(result_.exit_code));
}

// No message grows with the number of nodes.
void World::check_message(const FromCoordinator& message) {
  if (!std::holds_alternative<Release>(message)) return;
  try {
    const std::size_t size = encode(message).size();
    result_.largest_message = std::max(result_.largest_message, size);
    if (size > kLargestRelease) violate("a release has " + std::to_string(size) + " bytes");
  } catch (const ProtocolError& error) {
    violate(std::string("a release that cannot be sent: ") + error.what());
  }
}

}  // namespace ddprun::rendezvous::simulation
