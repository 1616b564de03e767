// Implements the faults of World (simulated_world.hpp): faults of workers, hosts, networks and nodes, and the end of all
// faults.
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
  trace(name(index) + " starts its workers in round " + name(release.id) + " as node " + std::to_string(release.group_rank) +
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

void World::stop_workers(int index, bool immediately) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  const Nanos killed_by = true_time(agent, agent.until_local) + agent.guardian_delay;
  if (immediately && agent.guardian_delay > 0 && killed_by > time_) {
    agent.ending = true;
    schedule(std::min(killed_by, time_ + agent.guardian_delay), Event::Kind::kWorkersEnd, index, 0, agent.life, agent.job);
    return;
  }
  if (immediately) {
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

// ---- Faults ----

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
    trace(name(victim) + " is frozen for " + std::to_string((agent.frozen_until - time_) / kMs) + " ms");
  } else if (kind < 60) {  // partition the network, in both directions or in one
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
    trace("partition" + std::string(both_ways ? "" : ", one way, from") + ":" + side + " for " +
          std::to_string((until - time_) / kMs) + " ms");
  } else if (kind < 70) {  // cut off one node: in both directions, only outgoing, or only incoming
    const Nanos until = time_ + between(100 * kMs, 16 * kSecond);
    const int way = static_cast<int>(between(0, 2));
    disturb(agent, until);
    for (int i = 0; i < std::ssize(agents_); ++i) {
      if (way != 1) block(victim, i, until);
      if (way != 2) block(i, victim, until);
    }
    trace(name(victim) +
          (way == 0   ? " is cut off for "
           : way == 1 ? " receives nothing for "
                      : " reaches no node for ") +
          std::to_string((until - time_) / kMs) + " ms");
  } else if (late_answers) {  // delay the messages of a node to another node, and then lose the node
    const int other = some_agent();
    if (!agent.node || other == victim) return;
    const Nanos until = time_ + between(2 * kSecond, 9 * kSecond);
    disturb(agent, until + kSecond * 4);
    disturb(agents_[static_cast<std::size_t>(other)], until + kSecond * 4);
    slow_[{victim, other}] = {.until = until, .extra = between(2 * kSecond, 4 * kSecond)};
    trace("messages of " + name(victim) + " to " + name(other) + " are late by " +
          std::to_string(slow_[{victim, other}].extra / kMs) + " ms for " + std::to_string((until - time_) / kMs) + " ms");
    if (chance(80)) schedule(until, Event::Kind::kPowerLoss, victim, 0, agent.life);
  } else if (kind < 84) {  // reset connections; the two ends detect the reset at different times
    trace("connections of " + name(victim) + " are reset");
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
    trace(name(victim) + " gets a signal");
    stop_requested(victim);
  }
}

void World::stop_requested(int index, bool saves) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  agent.got_stop_signal = stop_was_requested_ = true;
  if (agent.launcher) return agent.launcher->get_signal(SIGTERM);
  deliver(index, node_event::Local{StopRequest{SIGTERM, saves}});
}

void World::kill(int victim, bool silent) {
  trace(name(victim) + (silent ? ": its power is gone" : " is killed"));
  Agent& agent = agents_[static_cast<std::size_t>(victim)];
  // The node has already left the job, and only its workers were still running.
  agent.left = agent.left || (agent.node_is_over && agent.got_stop_signal);
  end_process(victim, silent);
  if (memory_is_lost_ && memory_chance(40)) lose_memory(victim);
  if (!chance(85)) return;
  const Nanos back = chance(50) ? between(10 * kMs, 2 * kSecond) : between(kSecond, 15 * kSecond);
  schedule(time_ + back, Event::Kind::kStart, victim, 0, agent.life);
}

// Resets a connection. Some or all data in flight is lost. The two ends detect the reset at different times, or not before they
// send the next message.
void World::reset(int link_index) {
  Link& link = links_[static_cast<std::size_t>(link_index)];
  const bool immediately = later_chance(50);
  for (const int direction : {0, 1}) {
    Pipe& pipe = link.pipe[direction];
    if (immediately) {
      pipe.packets.clear();
      pipe.head = 0;
    }
    send(link_index, direction, Fin{.reset = true});
  }
}

// Blocks the agent's event loop, like a call that hangs in a resolver or a file system. The guardian, the workers and the disk
// continue to run. After the block, the agent handles the overdue timers and the received data in any order.
void World::block_loop(int index, Nanos length) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || agent.frozen_until > time_ || job_over_) return;
  trace(name(index) + ": its loop is blocked for " + std::to_string(length / kMs) + " ms");
  agent.frozen_until = time_ + length;
  agent.loop_blocks = true;
  disturb(agent, agent.frozen_until);
}

Nanos World::resumes_at(const Agent& agent) {
  return agent.frozen_until + (agent.loop_blocks ? static_cast<Nanos>(block_random_() % 3000) * kResumesWithin / 3000 : 0);
}

// Suspends the whole host, including the guardian. This simulates that a laptop is closed or a virtual machine is paused.
void World::sleep(int index, Nanos length) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || agent.frozen_until > time_ || job_over_) return;
  trace(name(index) + ": its host sleeps for " + std::to_string(length / kMs) + " ms");
  agent.frozen_until = agent.asleep_until = time_ + length;
  agent.loop_blocks = false;
  disturb(agent, agent.frozen_until);
  if (scenario_.clocks_stop) agent.base -= static_cast<Nanos>(static_cast<double>(length) * agent.rate);
  schedule(agent.asleep_until, Event::Kind::kWake, index);
}

// Resumes a suspended host. The guardian's timer fires first. If the lease of the workers has expired by the host's clock, the
// guardian kills the workers before they can run.
void World::wake(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || !agent.training || agent.asleep_until != time_) return;
  if (local(agent, time_ - agent.guardian_delay) < agent.until_local) return check_training(index);
  if (agent.launcher) return;  // The guardian of a simulated launcher has a separate timer.
  trace(name(index) + ": its guardian ends its workers");
  rounds_[agent.round].failed = true;
  workers_gone(agent, index);
  agent.ending = true;
  schedule(time_ + kMs, Event::Kind::kWorkersEnd, index, 1, agent.life, agent.job);
}

// Deletes the persistent state of a node, as after a restart of its machine or container. On a normal host, the next process
// can still detect that a state existed. In a new container it cannot detect this.
void World::lose_memory(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.disk.self && !agent.disk.job_elsewhere) return;
  trace(name(index) + ": what it remembered is lost");
  agent.disk = {};
  agent.disk.job_elsewhere = !in_containers_;
  agent.disk.had_storage = !in_containers_;
}

// Call this when an agent has died but its machine is running. The guardian reaps all workers and then sends the death notice.
void World::schedule_death_notice(Agent& agent, int index, bool silent) {
  const coordinator_action::SetDeathNotice death_notice = std::exchange(agent.death_notice, {});
  if (silent || death_notice.to.port == 0) return;
  death_notices_.push_back(death_notice);
  const Nanos reaped = agent.guardian_delay * (kReapedWithin / kMaxGuardianDelay);
  schedule(time_ + reaped + static_cast<Nanos>(notice_random_() % 9000 + 20) * kMs, Event::Kind::kDeathNotice, index,
           std::ssize(death_notices_) - 1, agent.life);
}

// The guardian first deletes the node's record, so that no later process uses its node id. If a new process already uses the
// node id, no notice is sent, because the new process can vote in elections itself.
void World::send_death_notice(const Event& event) {
  Agent& agent = agents_[static_cast<std::size_t>(event.a)];
  const coordinator_action::SetDeathNotice& death_notice = death_notices_[static_cast<std::size_t>(event.b)];
  if (agent.life != event.life) return;
  if (!agent.powered) return;
  agent.disk = {};
  agent.disk.job_elsewhere = true;
  notice_was_sent_ = true;
  const int to = std::stoi(death_notice.to.host);
  Agent& other = agents_[static_cast<std::size_t>(to)];
  if (other.frozen_until > time_ || (!blocked_.empty() && blocked(event.a, to) > time_)) {
    return schedule(time_ + 500 * kMs, Event::Kind::kDeathNotice, event.a, event.b, event.life);
  }
  trace(name(event.a) + ": its guardian sends the death notice to " + name(to));
  if (!other.node) return;
  const Config& current = other.node->member().state().current;
  other.got_death_notice = current.id == death_notice.round;
  if (other.got_death_notice && current.rank >= 0 && other.node->coordinator() == nullptr)
    other.both_votes_round = current.origin();
  deliver(to, node_event::DeathNoticeReceived{death_notice.round});
}

// The workers of one node hang in a call to an unreachable file system. After that, a failure of another node's workers ends
// the round.
void World::get_stuck(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || !agent.training || job_over_) return;
  trace(name(index) + ": its workers hang in the kernel");
  agent.stuck = true;
  schedule(time_ + kStuckFor, Event::Kind::kUnstuck, index, 0, agent.life, agent.job);
  for (int i = 0; i < std::ssize(agents_); ++i) {
    const Agent& other = agents_[static_cast<std::size_t>(i)];
    if (i != index && other.training) {
      return schedule(time_ + 100 * kMs, Event::Kind::kWorkersFail, i, 0, other.life, other.job);
    }
  }
}

void World::unstick(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!std::exchange(agent.stuck, false)) return;
  disturb(agent, time_);
  trace(name(index) + ": the kernel releases its workers");
  if (agent.launcher) agent.launcher->release_from_kernel();
  if (agent.end_is_pending) schedule(time_ + kMs, Event::Kind::kWorkersEnd, index, 1, agent.life, agent.job);
  if (!agent.end_is_pending && recovering_ && !all_are_signalled_) {
    schedule(time_ + 3 * kSecond, Event::Kind::kWorkersDone, index, 0, agent.life, agent.job);
  }
}

// Called when all nodes of a round are training. Schedules the loss of the coordinator, or records how long the recovery took.
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
  trace(name(victim) + ": its power is gone");
  end_process(victim, /*silent=*/true);
}

// ---- Disks ----

void World::stall_disk(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  agent.disk_stalls_until = time_ + static_cast<Nanos>(disk_random_() % 9000) * kMs;
  trace(name(index) + ": its disk stalls for " + std::to_string((agent.disk_stalls_until - time_) / kMs) + " ms");
}

void World::write(int index, const member_action::Remember& action) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  agent.gave_up = agent.gave_up || agent.known_id.value_or(action.node) != action.node;
  agent.known_id = action.node;
  if (!disks_are_slow_) {
    remember(agent, action);
    return;
  }
  agent.writing.push_back(action);
  const Nanos takes = static_cast<Nanos>(disk_random_() % 5000) * kMs / 1000;
  agent.last_write = std::max({agent.last_write, agent.disk_stalls_until, time_}) + takes;
  schedule(agent.last_write, Event::Kind::kWritten, index, 0, agent.life);
}

// Completes a write, even if the process is suspended. A few writes fail. After a failed write, the host stores only the fact
// that a record existed. If there are spares, no write fails, because spares without records could start the job again
// elsewhere.
void World::complete_write(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || agent.writing.empty()) return;
  const bool may_fail = !recovering_ && std::ssize(agents_) <= max_nodes_;
  const bool fails = may_fail && disk_random_() % 40 == 0;
  const bool remembers = std::exchange(agent.remembers, agent.remembers && !fails);
  const bool ok = remember(agent, agent.writing.front());
  agent.remembers = remembers;
  records_were_lost_ = records_were_lost_ || !ok;
  if (!ok) trace(name(index) + ": its record cannot be written");
  agent.writing.pop_front();
  schedule(time_, Event::Kind::kWriteReported, index, ok ? 1 : 0, agent.life);
}

// Completes the pending writes of a process that ends normally, because such a process waits until its records are on disk.
void World::finish_writing(Agent& agent) {
  for (const member_action::Remember& one : std::exchange(agent.writing, {})) remember(agent, one);
}

void World::report_write(int index, bool ok) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  deliver(index, node_event::Tick{});
  if (!agent.node) return;
  const Before before = before_event(agent);
  perform(index, agent.gate.written(ok), before);
  if (ok && agent.node) deliver(index, node_event::Local{member_event::RecordWritten{}});
}

// Delivers a stop signal to one node. A scheduler signals all nodes within 20 ms.
void World::signal(int index) {
  if (!std::exchange(signals_came_, true)) {
    const auto leads = [](const Agent& agent) { return agent.node && agent.node->coordinator() != nullptr; };
    const auto leader = std::find_if(agents_.begin(), agents_.end(), leads);
    const bool calm = leader != agents_.end() && std::count_if(agents_.begin(), agents_.end(), leads) == 1 &&
                      leader->node->coordinator()->waits_for() == "the running round";
    const auto trains_in_its_round = [&](const Agent& agent) {
      return agent.node && agent.training && !agent.ending && agent.round == leader->node->coordinator()->round() &&
             agent.frozen_until <= time_ && agent.node->member().following() && (!agent.launcher || agent.launcher->can_save());
    };
    const bool all =
        calm && std::count_if(agents_.begin(), agents_.end(), trains_in_its_round) == rounds_[leader->round].first.nodes;
    for (Agent& agent : agents_) agent.must_save = all && trains_in_its_round(agent);
    if (all) lose_node_during_signals(static_cast<int>(leader - agents_.begin()));
    trace(all ? "all nodes get signals, and train" : "all nodes get signals");
    trace_states();
  }
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node) return;
  trace(name(index) + " gets a signal");
  stop_requested(index);
}

// Schedules the loss of a node within the 20 ms in which the signals arrive. So the round ends for a second reason, but the
// remaining nodes must still save.
void World::lose_node_during_signals(int leader) {
  std::mt19937_64 losses(scenario_.seed + 1618);
  const Round& round = rounds_[agents_[static_cast<std::size_t>(leader)].round];
  const int victim = static_cast<int>(losses() % agents_.size());
  Agent& agent = agents_[static_cast<std::size_t>(victim)];
  if (losses() % 2 == 0 || victim == leader || !agent.must_save || round.first.nodes <= min_nodes_) return;
  agent.must_save = false;
  schedule(time_ + static_cast<Nanos>(losses() % 20) * kMs, Event::Kind::kLostDuringSignals, victim, 0, agent.life);
}

// Cuts off every node from every other node.
void World::cut_off(Nanos length) {
  if (recovering_) return;
  trace("all are cut off from each other for " + std::to_string(length / kMs) + " ms");
  for (Nanos& until : blocked_) until = std::max(until, time_ + length);
  for (Agent& agent : agents_) disturb(agent, time_ + length);
}

// Sends a stop signal to one node, as when a spot instance is reclaimed or a machine is drained. If `saves` is true, the
// workers cannot keep their state, so all nodes save before the node leaves.
void World::leave(int index, bool saves) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || agent.frozen_until > time_ || job_over_ || signals_came_) return;
  trace(name(index) + " is to leave" + (saves ? ", after saving" : ""));
  stop_requested(index, saves);
}

// Ends all faults. Networks recover, lost nodes return, and workers finish one after the other.
void World::recover() {
  trace("all faults are over");
  recovering_ = true;
  std::fill(blocked_.begin(), blocked_.end(), 0);
  slow_.clear();
  for (Agent& agent : agents_) agent.disk_stalls_until = std::min(agent.disk_stalls_until, time_);
  // Links that are still slow get round trips of at most a fifth of the lease, the limit that docs/rendezvous.md states.
  jitter_ = std::min(jitter_, 100 * kMs);
  for (int i = 0; i < std::ssize(agents_); ++i) {
    Agent& agent = agents_[static_cast<std::size_t>(i)];
    agent.frozen_until = std::min(agent.frozen_until, time_);
    // Suspended hosts resume after the frozen agents. The workers of the frozen agents have ended by then.
    if (agent.asleep_until > time_) {
      // The hosts resume one after the other, so that each guardian acts before the next host resumes.
      agent.frozen_until = agent.asleep_until = time_ + 2 * kMs + i;
      schedule(agent.asleep_until, Event::Kind::kWake, i);
    }
    agent.extra_latency = std::min(agent.extra_latency, 200 * kMs);
    if (!agent.node) {
      schedule(time_ + between(0, 2 * kSecond), Event::Kind::kStart, i, 0, agent.life);
    } else if (agent.training && !all_are_signalled_) {
      schedule(time_ + 3 * kSecond, Event::Kind::kWorkersDone, i, 0, agent.life, agent.job);
    }
    // Events may have waited for the end of a block or a freeze, so their timers are set again.
    agent.timer_at = kNever;
    if (agent.node) set_timer(i);
  }
  hasten_calls();
}

}  // namespace ddprun::rendezvous::simulation
