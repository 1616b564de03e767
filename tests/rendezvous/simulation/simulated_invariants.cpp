// Implements the invariants of World (simulated_world.hpp), which are checked after every event.
#include <algorithm>
#include <utility>

#include "common/base/exit_code.hpp"
#include "rendezvous/wire/codec.hpp"
#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {

// Checks an invariant: a term has at most one coordinator.
void World::check_coordinator(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  const Coordinator* coordinator = agent.node->coordinator();
  if (coordinator == nullptr) {
    agent.coordinates = false;
    return;
  }
  if (agent.coordinates && agent.term_seen == coordinator->term()) return;
  if (!agent.gate.promise_is_written()) return;  // The node has not sent any message as coordinator yet.
  if (!agent.coordinates) ++result_.successions;
  if (std::exchange(agent.got_death_notice, false)) ++result_.by_death_notice;
  agent.coordinates = true;
  agent.term_seen = coordinator->term();
  trace(name(index) + " coordinates term " + std::to_string(agent.term_seen));
  const auto [known, is_new] = leader_of_term_.try_emplace(agent.term_seen, index, agent.life);
  if (!is_new && known->second != std::pair(index, agent.life)) {
    // This case is excused: a spare belongs to two jobs and has promised a term of one job to the other job.
    // docs/rendezvous.md gives no guarantee for this case.
    result_.excused = std::ssize(agents_) > max_nodes_ && agent.term_seen >> 20U != 0;
    if (result_.excused) return;
    violate("term " + std::to_string(agent.term_seen) + " has two coordinators: agents " + std::to_string(known->second.first) +
            " and " + std::to_string(index));
  }
}

// Checks an invariant: all nodes get the same release of a round. Each rank is assigned once, and the ranks are contiguous.
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
      // If the job was started again as a new job, it does not have the restart budget of the old job.
      const bool restarted_fresh = id.term >> 20U != release.id.term >> 20U;
      if (other.full && !restarted_fresh && id < release.id &&
          other.first.budget.restart_count > release.budget.restart_count) {
        violate("round " + name(release.id) + " forgets restarts of round " + name(id));
      }
    }
  }
  const Release& first = round.first;
  if (first.nodes != release.nodes || first.world_size != release.world_size || first.master != release.master ||
      first.budget.restart_count != release.budget.restart_count) {
    violate("nodes got different releases of round " + name(release.id));
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
  // A dead process and the next process of its node may both be in the round for a while.
  std::set<std::pair<int, std::uint32_t>> seen;
  for (const auto& [rank, agent] : round.members) {
    if (!seen.emplace(agent, round.lives[rank]).second && !agents_[static_cast<std::size_t>(agent)].gave_up)
      violate(name(agent) + " is twice in round " + name(release.id));
    if (round.offsets[rank] != next) violate("ranks of round " + name(release.id) + " are not contiguous");
    next += agents_[static_cast<std::size_t>(agent)].local_world_size;
  }
  if (next != release.world_size) violate("round " + name(release.id) + " has ranks without a node");
  check_failure_is_known(round);
}

// Checks an invariant: two rounds never train at the same time, except that nodes may leave an older round at different times.
// While a round trains, two kinds of rounds must not train: a round of another coordinator, and a round that has no node in
// common with it. A node of the newer round must not train in the older round. The invariant also covers workers whose agent
// is dead.
void World::check_training(int index) {
  const RoundId self_id = agents_[static_cast<std::size_t>(index)].round;
  for (auto& [id, other] : rounds_) {
    if (id == self_id || other.training.empty()) continue;
    for (const int b : other.training) {
      if (trains(agents_[static_cast<std::size_t>(b)])) check_together(index, self_id, b, id);
    }
  }
  for (const Orphans& one : orphans_) {
    if (one.until > time_ && one.round != self_id) check_together(index, self_id, one.agent, one.round);
  }
}

// Returns true if two conditions are met. First, the coordinator of this round was started in a new container after its record
// was lost. Second, it could reach no other node while it searched for a running job for one lease. docs/rendezvous.md
// describes this as the only case without a guarantee.
bool World::started_alone_without_memory(const RoundId& id) const {
  const int first = rounds_.at(id).coordinator;
  if (!in_containers_ || first < 0) return false;
  const Nanos probing = agents_[static_cast<std::size_t>(first)].probing_since;
  if (probing == kNever) return false;
  const auto away = [&](const Agent& agent) { return agent.disturbed_until > probing + kLease / 2; };
  return std::any_of(agents_.begin(), agents_.end(), away);
}

void World::check_together(int index, const RoundId& self_id, int b, const RoundId& id) {
  const Round& own = rounds_[self_id];
  const Round& other = rounds_[id];
  const std::string both = name(index) + " in round " + name(self_id) + ", " + name(b) + " in round " + name(id);
  const bool shared = std::any_of(own.members.begin(), own.members.end(), [&](const auto& mine) {
    return std::any_of(other.members.begin(), other.members.end(),
                       [&](const auto& theirs) { return theirs.second == mine.second; });
  });
  if (other.coordinator != own.coordinator || other.leadership != own.leadership) {
    // If there are spares, nodes that are cut off may start the job again. docs/rendezvous.md gives no guarantee for this case.
    const bool restarted_fresh = self_id.term >> 20U != id.term >> 20U || (own.job && other.job && own.job != other.job);
    const bool alone = started_alone_without_memory(self_id) || started_alone_without_memory(id);
    // A node of the older round leads the new job, so its workers in the older round have ended. Without these workers, the
    // other nodes of the older round cannot finish any step, and their leases expire.
    if (restarted_fresh && shared) return;
    if (restarted_fresh && (std::ssize(agents_) > max_nodes_ || alone)) {
      result_.excused = true;
    } else {
      violate("rounds of two coordinators train at the same time: " + both);
    }
    return;
  }
  const Round& newer = self_id > id ? own : other;
  const int in_older = self_id > id ? b : index;
  for (const auto& [rank, agent] : newer.members) {
    if (agent == in_older) violate("a node trains in an older round than the one it is in: " + both);
  }
  const bool all_known = std::ssize(own.members) == own.first.nodes && std::ssize(other.members) == other.first.nodes;
  if (!shared && all_known) violate("disjoint rounds train at the same time: " + both);
}

// Checks an invariant: if a worker failed and another coordinator continues with the same processes, that coordinator has
// counted the failure.
void World::check_failure_is_known(const Round& round) {
  const Config& previous = round.first.previous;
  const auto found = rounds_.find(previous.origin());
  if (!previous.exists() || found == rounds_.end()) return;
  const Round& last = found->second;
  // Two cases are excluded. First, a round in between, which only a few nodes have recorded, may have counted the failure.
  // Second, a node may never have received its round.
  const bool follows = std::next(found) != rounds_.end() && std::next(found)->first == round.first.id;
  // If nodes were lost too, the failure does not count as a restart, because workers fail when their peers are lost.
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

// ---- How rounds end, and how the job ends ----

void World::note_received(int index, int sender, const FromMember& message) {
  if (agents_[static_cast<std::size_t>(index)].node->coordinator() == nullptr) return;
  // A message to a coordinator that has an older round, or none, is ignored, because that coordinator cannot end this round.
  const RoundId own = agents_[static_cast<std::size_t>(index)].node->coordinator()->round();
  const auto finished = [&](const RoundId& round) {
    if (round <= own) rounds_[round].finished.insert(sender);
  };
  if (const auto* done = std::get_if<Done>(&message)) finished(done->round);
  const auto* hello = std::get_if<Hello>(&message);
  const auto away = away_.find({index, sender});
  const bool same_process = away != away_.end() && away->second.second >= agents_[static_cast<std::size_t>(sender)].id_since;
  // A new Hello of the same process means that the node has given up its previous connection.
  if (hello != nullptr && same_process) {
    away_.erase(away);
    note_lost(index, sender);
  }
  if (hello != nullptr && hello->workers == Workers::kDone) finished(hello->workers_round);
}

void World::note_lost(int index, int other) {
  const Coordinator* const leads = agents_[static_cast<std::size_t>(index)].node->coordinator();
  if (leads == nullptr) return;
  rounds_[leads->round()].lost.insert(other);
  trace(name(index) + " loses a connection of " + name(other));
}

void World::note_away(int index, int other, std::uint32_t life) {
  if (agents_[static_cast<std::size_t>(index)].node->coordinator() == nullptr) return;
  away_.try_emplace({index, other}, time_, life);
  trace(name(index) + " has a connection of " + name(other) + " reset");
}

void World::note_back(int index, int other) {
  away_.erase({index, other});
  const Coordinator* const leads = agents_[static_cast<std::size_t>(index)].node->coordinator();
  // The node has a new connection, which replaces the closed one.
  if (leads != nullptr) rounds_[leads->round()].lost.erase(other);
}

// Checks an invariant: a round ends only if a node has failed, has got a stop signal, has joined before any node had finished,
// or was lost before it had finished.
void World::check_round_over(int index, const RoundId& id, const std::string& why) {
  const Round& round = rounds_[id];
  // The result is 2 if the agent lost its record and restarted, and its earlier process still has a rank and an open
  // connection.
  const auto ranks_of_agent = [&](int agent) {
    return std::count_if(round.members.begin(), round.members.end(),
                         [&](const auto& member) { return member.second == agent; });
  };
  const auto unfinished = [&](int agent) { return !round.finished.contains(agent) || ranks_of_agent(agent) > 1; };
  const bool self_is_lost = why.starts_with("host" + std::to_string(index) + " ") && unfinished(index);
  const bool joined = why.ends_with(" joined") && round.finished.empty();
  if (round.failed || joined || self_is_lost || stop_was_requested_) return;
  if (std::any_of(round.lost.begin(), round.lost.end(), unfinished)) return;
  const auto given_up = [&](const auto& away) {
    const bool for_long = away.second.first + kResume <= time_ || why.find(" sent nothing for ") != std::string::npos;
    return away.first.first == index && unfinished(away.first.second) && for_long;
  };
  if (std::any_of(away_.begin(), away_.end(), given_up)) return;
  violate("round " + name(id) + " is ended without a reason: " + why);
}

// Checks an invariant: no node waits without a limit for the workers of other nodes.
void World::check_waiting(Agent& agent) {
  const Coordinator* const leads = agent.node->coordinator();
  const bool alone = alive_ == 1;  // true if no other node could lead instead of this one
  if (leads == nullptr || alone || !leads->waits_for().ends_with("nodes to stop their workers")) {
    agent.waits_since = 0;
  } else if (agent.waits_since == 0) {
    agent.waits_since = time_;
  } else if (time_ - agent.waits_since > 5 * kReadyTimeout / 2) {
    violate("a coordinator waits for " + leads->waits_for() + " for " + std::to_string((time_ - agent.waits_since) / kSecond) +
            " s");
  }
}

// Returns true if this node may not have received the end of the job, because of a fault of the node or of the coordinator.
// This node may then search for the other nodes until it gives up, or may end alone. A node that has saved after a signal may
// also end by itself if its coordinator is lost, because the job may continue elsewhere.
bool World::may_miss_end(int index) const {
  // How long after its last fault a node may still miss the end of the job. Normally this is the time in which a session can
  // be resumed, because the last message of a killed coordinator may be in flight. The time is longer if nodes are reclaimed,
  // because a signal may end the job before a node that was cut off has dialed again.
  const Nanos detection_time = nodes_are_reclaimed_ ? 2 * kSecond : kMaxResume;
  const auto disturbed = [&](const Agent& agent) { return agent.disturbed_until + detection_time > job_over_at_; };
  // docs/rendezvous.md gives no guarantee for nodes whose record is lost.
  const bool some_lost_memory = memory_is_lost_ || notice_was_sent_;
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  return ended_by_itself_ || some_lost_memory || agent.outvoted || disturbed(agent) ||
         disturbed(agents_[static_cast<std::size_t>(decided_by_)]);
}

// Returns true if spares have started the job again. With spares, the nodes that are cut off from the job may be enough to
// start it again.
bool World::started_by_spares(const RoundId& id) const {
  return std::ssize(agents_) > max_nodes_ && id.term >> 20U != 0;
}

bool World::leader_may_miss_end(const RoundId& id) const {
  const auto round = rounds_.find(id);
  return round != rounds_.end() && round->second.coordinator >= 0 && may_miss_end(round->second.coordinator);
}

void World::check_start_after_end(int index, const RoundId& id) {
  if (!job_over_ || started_by_spares(id) || may_miss_end(index)) return;
  if (!leader_may_miss_end(id)) violate(name(index) + " starts workers after the end of the job");
}

// Checks an invariant: if a node trained when all nodes got a signal, it has saved, or it reports why it has not saved. There
// is one exception: if another node died while all workers saved together, the save has no result, because no process has the
// whole state any more.
void World::check_stopped(int index, const node_action::Finish& finish) {
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  const bool saved = finish.exit_code == static_cast<int>(ExitCode::kPreempted);
  const bool died_while_saving = lost_during_signals_ && finish.why.ends_with("before all workers could save");
  if (agent.must_save && !saved && !died_while_saving) {
    violate(name(index) + " trained, and ends with " + std::to_string(finish.exit_code) + " after a signal: " + finish.why);
  }
  if (!saved && finish.why.empty()) violate(name(index) + " ends after a signal and does not report why");
}

// Checks an invariant: in a job of two nodes, a node that has the vote of the other, dead node never exits because of a
// missing majority.
void World::check_minority(int index, const node_action::Finish& finish) {
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  const PersistentState& state = agent.node->member().state();
  if (finish.exit_code != static_cast<int>(ExitCode::kMinority) || !agent.both_votes_round) return;
  if (state.current.origin() != *agent.both_votes_round || state.previous.exists() ||
      agent.disturbed_until + 2 * kLease > time_)
    return;
  violate(name(index) + " ends as a minority, though it has the vote of the node that is dead");
}

// Checks an invariant: all nodes of a job end with the same exit code.
void World::check_end(int index, const node_action::Finish& finish) {
  if (!job_over_ || finish.exit_code == result_.exit_code || may_miss_end(index)) return;
  const Config& current = agents_[static_cast<std::size_t>(index)].node->member().state().current;
  // The node did not take part in this job, or may have missed its end.
  if (!current.exists() || started_by_spares(current.id) || leader_may_miss_end(current.id)) return;
  violate(name(index) + " ends with " + std::to_string(finish.exit_code) + ", others with " +
          std::to_string(result_.exit_code));
}

// Checks an invariant: the size of a message does not depend on the number of nodes.
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
