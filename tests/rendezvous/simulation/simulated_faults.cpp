// The part of World (simulated_world.hpp) that injects faults: into workers, hosts, networks and nodes, until all faults end.
#include <algorithm>
#include <csignal>
#include <utility>

#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {

void World::start_workers(int index, const member_action::StartWorkers& action) {
  begin_work(index, action.release);
  agents_[static_cast<std::size_t>(index)].until_local = stamp_of(action.until);
}

void World::begin_work(int index, const Release& release) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  tell(name(index) + " starts its workers in round " + name(release.id) + " as node " + std::to_string(release.group_rank) +
       " of " + std::to_string(release.nodes) + ", restart " + std::to_string(release.budget.restart_count));
  if (agent.training) violate(name(index) + " starts workers while it has some");
  check_start_after_end(index, release.id);
  if (!agent.launcher && agent.node->coordinator() != nullptr) note_release(index, agent.life, release, index);
  agent.training = true;
  agent.ending = false;
  agent.broken = false;
  agent.round = release.id;
  ++agent.job;
  Round& round = rounds_[agent.round];
  round.training.insert(index);
  if (std::ssize(round.training) == round.first.nodes) {
    round.full = true;
    note_full(round);
  }
  started_.push_back(index);
  if (scenario_.faults && !recovering_ && chance(10)) {
    schedule(time_ + between(0, 5 * kSecond), Event::Kind::kWorkersFail, index, 0, agent.life, agent.job);
  }
  if (recovering_ && !all_are_signalled_)
    schedule(time_ + 3 * kSecond, Event::Kind::kWorkersDone, index, 0, agent.life, agent.job);
  if (finishing_happens_ && !recovering_) {
    if (round.done_at == 0) round.done_at = time_ + later_between(0, 10 * kSecond);
    schedule(round.done_at + later_between(0, later_chance(50) ? 10 * kMs : 6 * kSecond), Event::Kind::kWorkersDone, index, 0,
             agent.life, agent.job);
  }
}

void World::stop_workers(int index, bool at_once) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  const Nanos killed_by = true_time(agent, agent.until_local) + agent.guardian_late;
  if (at_once && agent.guardian_late > 0 && killed_by > time_) {
    agent.ending = true;
    schedule(std::min(killed_by, time_ + agent.guardian_late), Event::Kind::kWorkersEnd, index, 0, agent.life, agent.job);
    return;
  }
  if (at_once) {
    workers_gone(agent, index);
    schedule(time_ + kMs, Event::Kind::kWorkersEnd, index, 1, agent.life, agent.job);
    return;
  }
  if (std::exchange(agent.ending, true)) return;
  const Nanos takes = chance(85) || scenario_.loses_coordinator ? between(kMs, 300 * kMs) : between(kMs, 9 * kSecond);
  schedule(time_ + takes, Event::Kind::kWorkersEnd, index, 0, agent.life, agent.job);
}

void World::workers_gone(Agent& agent, int index) {
  if (!agent.training) return;
  agent.training = false;
  rounds_[agent.round].training.erase(index);
}

// ---- faults ----

void World::fault() {
  if (job_over_) return;
  const int kind = static_cast<int>(between(0, 99));
  const bool late_answers = kind >= 70 && kind < 76;
  const int victim = late_answers || chance(40) ? coordinator_now() : some_agent();
  Agent& agent = agents_[static_cast<std::size_t>(victim)];
  const auto block = [&](int from, int to, Nanos until) {
    if (from != to && !blocked_.empty()) blocked(from, to) = std::max(blocked(from, to), until);
  };
  if (kind < 25) {
    if (!agent.node) return;
    const bool silent = chance(50);
    kill(victim, silent);
  } else if (kind < 40) {
    if (!agent.node) return;
    agent.loop_blocks = false;
    agent.frozen_until = std::max(agent.frozen_until, time_) +
                         (chance(50) ? between(10 * kMs, 2 * kSecond) : between(2 * kSecond, 14 * kSecond));
    disturb(agent, agent.frozen_until);
    tell(name(victim) + " is frozen for " + std::to_string((agent.frozen_until - time_) / kMs) + " ms");
  } else if (kind < 60) {  // both ways, or one way
    const Nanos until = time_ + (chance(40) ? between(100 * kMs, 4 * kSecond) : between(4 * kSecond, 20 * kSecond));
    const bool both_ways = chance(60);
    std::string side;
    std::vector<bool> in_side(agents_.size());
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      in_side[i] = chance(50);
      disturb(agents_[i], until);
      if (in_side[i]) side += " " + std::to_string(i);
    }
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      for (std::size_t j = 0; j < agents_.size(); ++j) {
        if (in_side[i] == in_side[j]) continue;
        if (in_side[i] || both_ways) block(static_cast<int>(i), static_cast<int>(j), until);
      }
    }
    tell("partition" + std::string(both_ways ? "" : ", one way, from") + ":" + side + " for " +
         std::to_string((until - time_) / kMs) + " ms");
  } else if (kind < 70) {  // one node's cable, or only its outgoing or incoming direction
    const Nanos until = time_ + between(100 * kMs, 16 * kSecond);
    const int way = static_cast<int>(between(0, 2));
    disturb(agent, until);
    for (int i = 0; i < std::ssize(agents_); ++i) {
      if (way != 1) block(victim, i, until);
      if (way != 2) block(i, victim, until);
    }
    tell(name(victim) +
         (way == 0   ? " is cut off for "
          : way == 1 ? " hears nothing for "
                     : " is not heard for ") +
         std::to_string((until - time_) / kMs) + " ms");
  } else if (late_answers) {  // answers are late, and then the node is lost
    const int other = some_agent();
    if (!agent.node || other == victim) return;
    const Nanos until = time_ + between(2 * kSecond, 9 * kSecond);
    disturb(agent, until + kSecond * 4);
    disturb(agents_[static_cast<std::size_t>(other)], until + kSecond * 4);
    slow_[{victim, other}] = {.until = until, .extra = between(2 * kSecond, 4 * kSecond)};
    tell("what " + name(victim) + " says to " + name(other) + " is late by " +
         std::to_string(slow_[{victim, other}].extra / kMs) + " ms for " + std::to_string((until - time_) / kMs) + " ms");
    if (chance(80)) schedule(until, Event::Kind::kPowerLoss, victim, 0, agent.life);
  } else if (kind < 84) {  // connections are reset, and each side notices it separately
    tell("connections of " + name(victim) + " are reset");
    disturb(agent, time_);
    const auto links = agent.links;
    for (const auto& [id, link_index] : links) {
      if (chance(50)) continue;
      reset(link_index);
    }
  } else if (kind < 96 || !leaving_happens_) {
    if (agent.node && agent.training) {
      schedule(time_ + between(0, kSecond), Event::Kind::kWorkersFail, victim, 0, agent.life, agent.job);
    }
  } else if (agent.node && agent.frozen_until <= time_) {
    tell(name(victim) + " gets a signal");
    stop_requested(victim);
  }
}

void World::stop_requested(int index, bool saves) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  agent.asked_to_stop = somebody_was_asked_to_stop_ = true;
  if (agent.launcher) return agent.launcher->get_signal(SIGTERM);
  deliver(index, node_event::Local{member_event::StopRequested{SIGTERM, saves}});
}

void World::kill(int victim, bool silent) {
  tell(name(victim) + (silent ? ": its power is gone" : " is killed"));
  Agent& agent = agents_[static_cast<std::size_t>(victim)];
  agent.left = agent.left || (agent.node_is_over && agent.asked_to_stop);  // it waits only for its workers
  end_process(victim, silent);
  if (memory_is_lost_ && memory_chance(40)) lose_memory(victim);
  if (!chance(85)) return;
  const Nanos back = chance(50) ? between(10 * kMs, 2 * kSecond) : between(kSecond, 15 * kSecond);
  schedule(time_ + back, Event::Kind::kStart, victim, 0, agent.life);
}

// Some or all data in flight is lost, and each side notices the end separately: later, or only when it sends again.
void World::reset(int link_index) {
  Link& link = links_[static_cast<std::size_t>(link_index)];
  const bool at_once = later_chance(50);
  for (const int direction : {0, 1}) {
    Pipe& pipe = link.pipe[direction];
    if (at_once) {
      pipe.packets.clear();
      pipe.head = 0;
    }
    send(link_index, direction, Fin{.reset = true});
  }
}

// A call of the agent's loop does not return (a resolver, a file system), while guardian, workers and disk continue. Afterwards
// due timers and received data are handled in any order.
void World::block_loop(int index, Nanos length) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || agent.frozen_until > time_ || job_over_) return;
  tell(name(index) + ": its loop is blocked for " + std::to_string(length / kMs) + " ms");
  agent.frozen_until = time_ + length;
  agent.loop_blocks = true;
  disturb(agent, agent.frozen_until);
}

Nanos World::goes_on_at(const Agent& agent) {
  return agent.frozen_until + (agent.loop_blocks ? static_cast<Nanos>(block_random_() % 3000) * kGoesOnWithin / 3000 : 0);
}

// A laptop is closed, a virtual machine is paused: the whole host stops, including the guardian.
void World::sleep(int index, Nanos length) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || agent.frozen_until > time_ || job_over_) return;
  tell(name(index) + ": its host sleeps for " + std::to_string(length / kMs) + " ms");
  agent.frozen_until = agent.asleep_until = time_ + length;
  agent.loop_blocks = false;
  disturb(agent, agent.frozen_until);
  if (scenario_.clocks_stop) agent.base -= static_cast<Nanos>(static_cast<double>(length) * agent.rate);
  schedule(agent.asleep_until, Event::Kind::kWake, index);
}

// The guardian's timer fires first: workers whose grant is over by their host's clock do nothing any more.
void World::wake(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || !agent.training || agent.asleep_until != time_) return;
  if (local(agent, time_ - agent.guardian_late) < agent.until_local) return check_training(index);
  if (agent.launcher) return;  // the launcher's guardian has its own timer
  tell(name(index) + ": its guardian ends its workers");
  rounds_[agent.round].failed = true;
  workers_gone(agent, index);
  agent.ending = true;
  schedule(time_ + kMs, Event::Kind::kWorkersEnd, index, 1, agent.life, agent.job);
}

// The machine or its container is restarted. Of the persistent state it keeps only the fact that there was some, or not even
// that.
void World::lose_memory(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.disk.self && !agent.disk.job_elsewhere) return;
  tell(name(index) + ": what it remembered is lost");
  agent.disk = {};
  agent.disk.job_elsewhere = !in_containers_;
  agent.disk.kept = !in_containers_;
}

// The agent is dead, but its machine is up: its guardian sends a farewell after it has reaped all workers.
void World::entrust_farewell(Agent& agent, int index, bool silent) {
  const coordinator_action::Entrust entrusted = std::exchange(agent.entrusted, {});
  if (silent || entrusted.to.port == 0) return;
  farewells_.push_back(entrusted);
  const Nanos reaped = agent.guardian_late * (kReapedWithin / kGuardianLate);
  schedule(time_ + reaped + static_cast<Nanos>(farewell_random_() % 9000 + 20) * kMs, Event::Kind::kFarewell, index,
           std::ssize(farewells_) - 1, agent.life);
}

// The guardian first removes the identity for later processes, unless a new process already has it: that one votes as before.
void World::say_farewell(const Event& event) {
  Agent& agent = agents_[static_cast<std::size_t>(event.a)];
  const coordinator_action::Entrust& entrusted = farewells_[static_cast<std::size_t>(event.b)];
  if (agent.life != event.life) return;
  if (!agent.powered) return;
  agent.disk = {};
  agent.disk.job_elsewhere = true;
  farewell_was_said_ = true;
  const int to = std::stoi(entrusted.to.host);
  Agent& other = agents_[static_cast<std::size_t>(to)];
  if (other.frozen_until > time_ || (!blocked_.empty() && blocked(event.a, to) > time_)) {
    return schedule(time_ + 500 * kMs, Event::Kind::kFarewell, event.a, event.b, event.life);
  }
  tell(name(event.a) + ": its guardian says farewell to " + name(to));
  if (!other.node) return;
  const Config& current = other.node->member().state().current;
  other.heard_farewell = current.id == entrusted.round;
  if (other.heard_farewell && current.rank >= 0 && other.node->coordinator() == nullptr)
    other.has_both_votes_in = current.origin();
  deliver(to, node_event::Farewell{entrusted.round});
}

// Its workers hang in a dead file system, and another node ends the round.
void World::get_stuck(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || !agent.training || job_over_) return;
  tell(name(index) + ": its workers hang in the kernel");
  agent.stuck = true;
  schedule(time_ + kStuckFor, Event::Kind::kUnstuck, index, 0, agent.life, agent.job);
  for (int i = 0; i < std::ssize(agents_); ++i) {
    const Agent& other = agents_[static_cast<std::size_t>(i)];
    if (i != index && other.training) {
      return schedule(time_ + 100 * kMs, Event::Kind::kWorkersFail, i, 0, other.life, other.job);
    }
  }
}

void World::get_loose(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!std::exchange(agent.stuck, false)) return;
  disturb(agent, time_);
  tell(name(index) + ": the kernel lets go of its workers");
  if (agent.launcher) agent.launcher->kernel_lets_go();
  if (agent.owes_end) schedule(time_ + kMs, Event::Kind::kWorkersEnd, index, 1, agent.life, agent.job);
  if (!agent.owes_end && recovering_ && !all_are_signalled_) {
    schedule(time_ + 3 * kSecond, Event::Kind::kWorkersDone, index, 0, agent.life, agent.job);
  }
}

// All nodes train, for the first time or again.
void World::note_full(const Round& round) {
  if (!scenario_.loses_coordinator) return;
  if (coordinator_lost_ == 0 && round.first.nodes == std::ssize(agents_)) {
    coordinator_lost_ = time_ + 10 * kSecond;
    schedule(coordinator_lost_, Event::Kind::kLoseCoordinator, 0);
  } else if (coordinator_lost_ != 0 && round.first.nodes + 1 == std::ssize(agents_)) {
    result_.at_work_again_s = static_cast<double>(time_ - coordinator_lost_ - kLease) / kSecond;
  }
}

void World::lose_coordinator() {
  const int victim = coordinator_now();
  tell(name(victim) + ": its power is gone");
  end_process(victim, /*silent=*/true);
}

// ---- disks ----

void World::stall_disk(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  agent.disk_stalls_until = time_ + static_cast<Nanos>(disk_random_() % 9000) * kMs;
  tell(name(index) + ": its disk stalls for " + std::to_string((agent.disk_stalls_until - time_) / kMs) + " ms");
}

void World::write(int index, const member_action::Remember& action) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  agent.gave_up = agent.gave_up || agent.known_as.value_or(action.node) != action.node;
  agent.known_as = action.node;
  if (!disks_are_slow_) {
    remember(agent, action);
    return;
  }
  agent.writing.push_back(action);
  const Nanos takes = static_cast<Nanos>(disk_random_() % 5000) * kMs / 1000;
  agent.last_write = std::max({agent.last_write, agent.disk_stalls_until, time_}) + takes;
  schedule(agent.last_write, Event::Kind::kWritten, index, 0, agent.life);
}

// The disk also finishes writes of a stopped process. A few writes fail, and then only the fact is remembered that there was a
// record. With spares the number of nodes elsewhere is unknown.
void World::write_is_done(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || agent.writing.empty()) return;
  const bool may_fail = !recovering_ && std::ssize(agents_) <= max_nodes_;
  const bool fails = may_fail && disk_random_() % 40 == 0;
  const bool remembers = std::exchange(agent.remembers, agent.remembers && !fails);
  const bool ok = remember(agent, agent.writing.front());
  agent.remembers = remembers;
  records_were_lost_ = records_were_lost_ || !ok;
  if (!ok) tell(name(index) + ": its record cannot be written");
  agent.writing.pop_front();
  schedule(time_, Event::Kind::kWrittenHeard, index, ok ? 1 : 0, agent.life);
}

// A process that ends by itself waits for its disk.
void World::finish_writing(Agent& agent) {
  for (const member_action::Remember& one : std::exchange(agent.writing, {})) remember(agent, one);
}

void World::write_was_heard(int index, bool ok) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  deliver(index, node_event::Tick{});
  if (!agent.node) return;
  const Before before = before_event(agent);
  perform(index, agent.gate.written(ok), before);
  if (ok && agent.node) deliver(index, node_event::Local{member_event::RecordWritten{}});
}

// One of the signals that a scheduler sends to all nodes.
void World::signal(int index) {
  if (!std::exchange(signals_came_, true)) {
    const auto leads = [](const Agent& agent) { return agent.node && agent.node->coordinator() != nullptr; };
    const auto leader = std::find_if(agents_.begin(), agents_.end(), leads);
    const bool calm = leader != agents_.end() && std::count_if(agents_.begin(), agents_.end(), leads) == 1 &&
                      leader->node->coordinator()->waits_for() == "the running round";
    const auto trains_with_it = [&](const Agent& agent) {
      return agent.node && agent.training && !agent.ending && agent.round == leader->node->coordinator()->round() &&
             agent.frozen_until <= time_ && agent.node->member().following() && (!agent.launcher || agent.launcher->can_save());
    };
    const bool all =
        calm && std::count_if(agents_.begin(), agents_.end(), trains_with_it) == rounds_[leader->round].first.nodes;
    for (Agent& agent : agents_) agent.must_save = all && trains_with_it(agent);
    if (all) lose_one_amid_signals(static_cast<int>(leader - agents_.begin()));
    tell(all ? "all nodes get signals, and train" : "all nodes get signals");
    tell_where_all_are();
  }
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node) return;
  tell(name(index) + " gets a signal");
  stop_requested(index);
}

// The round ends for another reason within the same 20 ms: the remaining nodes still save.
void World::lose_one_amid_signals(int leader) {
  std::mt19937_64 losses(scenario_.seed + 1618);
  const Round& round = rounds_[agents_[static_cast<std::size_t>(leader)].round];
  const int victim = static_cast<int>(losses() % agents_.size());
  Agent& agent = agents_[static_cast<std::size_t>(victim)];
  if (losses() % 2 == 0 || victim == leader || !agent.must_save || round.first.nodes <= min_nodes_) return;
  agent.must_save = false;
  schedule(time_ + static_cast<Nanos>(losses() % 20) * kMs, Event::Kind::kLostAmidSignals, victim, 0, agent.life);
}

// Cuts all nodes off from each other.
void World::cut_off(Nanos length) {
  if (recovering_) return;
  tell("all are cut off from each other for " + std::to_string(length / kMs) + " ms");
  for (Nanos& until : blocked_) until = std::max(until, time_ + length);
  for (Agent& agent : agents_) disturb(agent, time_ + length);
}

// A spot instance is reclaimed, or a machine is drained. `saves`: its workers cannot be held, so all save first.
void World::leave(int index, bool saves) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || agent.frozen_until > time_ || job_over_ || signals_came_) return;
  tell(name(index) + " is to leave" + (saves ? ", after saving" : ""));
  stop_requested(index, saves);
}

// No more faults: networks recover, lost nodes come back, and workers finish one by one.
void World::recover() {
  tell("all faults are over");
  recovering_ = true;
  std::fill(blocked_.begin(), blocked_.end(), 0);
  slow_.clear();
  for (Agent& agent : agents_) agent.disk_stalls_until = std::min(agent.disk_stalls_until, time_);
  // The remaining slow links have round trips of at most a fifth of the lease: docs/rendezvous.md promises no more.
  jitter_ = std::min(jitter_, 100 * kMs);
  for (int i = 0; i < std::ssize(agents_); ++i) {
    Agent& agent = agents_[static_cast<std::size_t>(i)];
    agent.frozen_until = std::min(agent.frozen_until, time_);
    if (agent.asleep_until > time_) {                                 // after those that were frozen, whose workers are gone
      agent.frozen_until = agent.asleep_until = time_ + 2 * kMs + i;  // one after the other: each guardian first
      schedule(agent.asleep_until, Event::Kind::kWake, i);
    }
    agent.extra_latency = std::min(agent.extra_latency, 200 * kMs);
    if (!agent.node) {
      schedule(time_ + between(0, 2 * kSecond), Event::Kind::kStart, i, 0, agent.life);
    } else if (agent.training && !all_are_signalled_) {
      schedule(time_ + 3 * kSecond, Event::Kind::kWorkersDone, i, 0, agent.life, agent.job);
    }
    // Events that waited for the end of a block or a freeze.
    agent.timer_at = kNever;
    if (agent.node) set_timer(i);
  }
  hasten_calls();
}

}  // namespace ddprun::rendezvous::simulation
