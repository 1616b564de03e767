// Implementation of simulator.hpp: builds the world, processes its events, and carries out the actions of the nodes.
#include "tests/rendezvous/simulation/simulator.hpp"

#include <algorithm>
#include <utility>

#include "common/base/exit_code.hpp"
#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {

void World::build() {
  std::mt19937_64 pairs(scenario_.seed + 1414);
  const bool two_need_each_other = scenario_.faults && scenario_.agents == 0 && pairs() % 25 == 0;
  const int count = scenario_.agents > 0  ? scenario_.agents
                    : two_need_each_other ? 2
                    : chance(10)          ? static_cast<int>(between(8, 16))
                                          : static_cast<int>(between(1, 7));
  agents_.resize(static_cast<std::size_t>(count));
  blocked_.assign(agents_.size() * (agents_.size() <= 64 ? agents_.size() : 0), 0);
  max_nodes_ = chance(70) ? count : static_cast<std::int32_t>(between(1, count));
  min_nodes_ = chance(40) ? max_nodes_ : static_cast<std::int32_t>(between(1, max_nodes_));
  // Cuts the nodes off for so long that the leading node must be elected again, and then kills that node.
  if (two_need_each_other) {
    max_nodes_ = min_nodes_ = 2;
    const Nanos at = 11 * kSecond + static_cast<Nanos>(pairs() % 2000) * kMs;
    const Nanos length = 10 * kSecond + static_cast<Nanos>(pairs() % 9000) * kMs;
    schedule(at, Event::Kind::kCutOff, 0, length);
    schedule(at + length - 5 * kSecond + static_cast<Nanos>(pairs() % 8000) * kMs, Event::Kind::kKilled, 0);
  }
  max_restarts_ = static_cast<std::int32_t>(between(0, 4));
  if (scenario_.loses_coordinator) {
    max_nodes_ = count;
    min_nodes_ = count / 2;
  }
  if (scenario_.arbiter) build_arbiter();
  through_codec_ = scenario_.seed % 8 == 0;
  leaving_happens_ = scenario_.faults && chance(15);
  jitter_ = chance(70) ? 2 * kMs : between(5 * kMs, 400 * kMs);
  faults_end_ = scenario_.faults ? between(8 * kSecond, 40 * kSecond) : 0;
  for (int i = 0; i < count; ++i) {
    Agent& agent = agents_[static_cast<std::size_t>(i)];
    for (std::uint8_t& byte : agent.id) byte = static_cast<std::uint8_t>(random_());
    agent.rate = chance(50)   ? 1.0
                 : chance(50) ? 0.9
                 : chance(50) ? 1.1
                              : 0.9 + 0.2 * static_cast<double>(between(0, 1000)) / 1000;
    agent.base = between(kSecond, 100000 * kSecond);
    agent.skew = between(-5 * kSecond, 5 * kSecond);
    if (scenario_.faults && chance(10)) agent.extra_latency = between(20 * kMs, 500 * kMs);
    agent.local_world_size = static_cast<int>(between(1, 8));
    if (scenario_.launcher) agent.local_world_size = 1 + agent.local_world_size % 3;
    schedule(chance(80) ? between(0, 200 * kMs) : between(0, 10 * kSecond), Event::Kind::kStart, i);
  }
  finishing_happens_ = scenario_.faults && later_chance(25);
  trace(std::to_string(count) + " agents, " + std::to_string(min_nodes_) + " to " + std::to_string(max_nodes_) +
        " nodes, at most " + std::to_string(max_restarts_) + " restarts");
  if (scenario_.faults) {
    Nanos at = between(100 * kMs, 4 * kSecond);
    while (at < faults_end_) {
      schedule(at, Event::Kind::kFault, 0);
      at += chance(50) ? between(kMs, 2 * kSecond) : between(kSecond, 9 * kSecond);
    }
  }
  if (!scenario_.loses_coordinator) schedule(faults_end_, Event::Kind::kRecover, 0);
  std::mt19937_64 stuck(scenario_.seed + 1623);
  workers_get_stuck_ = scenario_.faults && count > 1 && stuck() % 10 == 0;
  if (workers_get_stuck_) {
    const Nanos at = static_cast<Nanos>(stuck() % static_cast<std::uint64_t>(faults_end_));
    schedule(at, Event::Kind::kStuck, static_cast<int>(stuck() % static_cast<std::uint64_t>(count)));
  }
  std::mt19937_64 naps(scenario_.seed + 2718);
  if (scenario_.faults && naps() % 10 == 0) {
    for (std::uint64_t left = 1 + naps() % 4; left > 0; --left) {
      const Nanos at = static_cast<Nanos>(naps() % static_cast<std::uint64_t>(faults_end_));
      schedule(at, Event::Kind::kSleep, static_cast<int>(naps() % static_cast<std::uint64_t>(count)),
               kSecond + static_cast<Nanos>(naps() % 14000) * kMs);
    }
  }
  block_random_.seed(scenario_.seed + 9091);
  if (scenario_.faults && block_random_() % 6 == 0) {
    for (std::uint64_t left = 1 + block_random_() % 6; left > 0; --left) {
      const Nanos at = static_cast<Nanos>(block_random_() % static_cast<std::uint64_t>(faults_end_));
      const Nanos length = static_cast<Nanos>(block_random_() % (block_random_() % 2 == 0 ? 1000 : 9000)) * kMs;
      schedule(at, Event::Kind::kLoopBlocks, static_cast<int>(block_random_() % static_cast<std::uint64_t>(count)), length);
    }
  }
  in_containers_ = scenario_.faults && std::mt19937_64(scenario_.seed + 7331)() % 4 == 0;
  for (Agent& agent : agents_) agent.disk.had_storage = !in_containers_;
  // If there are spares, the simulation deletes no records, because spares without records could start the job again
  // elsewhere.
  memory_random_.seed(scenario_.seed + 5227);
  notice_random_.seed(scenario_.seed + 99);
  memory_is_lost_ = scenario_.faults && count > 1 && count <= max_nodes_ && memory_chance(35);
  if (memory_is_lost_) {
    for (int i = 0; i < count; ++i) {
      if (!memory_chance(25)) continue;
      const Nanos at = static_cast<Nanos>(memory_random_() % static_cast<std::uint64_t>(faults_end_));
      schedule(at, Event::Kind::kDiskFull, i);
      schedule(at + static_cast<Nanos>(memory_random_() % 15) * kSecond, Event::Kind::kDiskFree, i);
    }
  }
  disk_random_.seed(scenario_.seed + 3329);
  disks_are_slow_ = scenario_.faults && disk_random_() % 5 == 0;
  for (int i = 0; disks_are_slow_ && i < 2 * count; ++i) {
    const Nanos at = static_cast<Nanos>(disk_random_() % static_cast<std::uint64_t>(faults_end_));
    schedule(at, Event::Kind::kDiskStalls, static_cast<int>(disk_random_() % static_cast<std::uint64_t>(count)));
  }
  std::mt19937_64 guardians(scenario_.seed + 4242);
  for (Agent& agent : agents_) {
    if (scenario_.faults && guardians() % 3 == 0)
      agent.guardian_delay = static_cast<Nanos>(guardians() % (kMaxGuardianDelay / kMs)) * kMs;
  }
  std::mt19937_64 reclaims(scenario_.seed + 6061);
  nodes_are_reclaimed_ = scenario_.faults && reclaims() % 5 == 0;
  for (std::uint64_t left = nodes_are_reclaimed_ ? 1 + reclaims() % 3 : 0; left > 0; --left) {
    const Nanos at = static_cast<Nanos>(reclaims() % static_cast<std::uint64_t>(faults_end_));
    // In a third of the runs any node may leave, and in the other runs only the coordinator's node.
    const bool any = reclaims() % 3 == 0;
    schedule(at, Event::Kind::kLeave, any ? static_cast<int>(reclaims() % static_cast<std::uint64_t>(count)) : -1,
             static_cast<std::int64_t>(reclaims() % 2));
  }
  std::mt19937_64 signals(scenario_.seed + 815);
  all_are_signalled_ = scenario_.faults && signals() % 10 == 0;
  if (!all_are_signalled_) return;
  const Nanos at = faults_end_ + 6 * kSecond + static_cast<Nanos>(signals() % 30000) * kMs;
  const Nanos within = static_cast<Nanos>(signals() % 21) * kMs;
  for (int i = 0; i < count; ++i)
    schedule(at + (within > 0 ? static_cast<Nanos>(signals() % static_cast<std::uint64_t>(within)) : 0), Event::Kind::kSignal,
             i);
}

NodeSettings World::settings_for(int index) const {
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  NodeSettings settings;
  settings.member.node = agent.id;
  settings.member.incarnation = agent.incarnation << 40U;
  settings.member.hostname = "host" + std::to_string(index);
  settings.member.listens = {std::to_string(index), 1};
  settings.member.local_world_size = agent.local_world_size;
  settings.member.death_notice_port = 1;
  settings.member.master_port = static_cast<std::uint16_t>(1000 + index);
  settings.member.join_timeout = milliseconds(60000);
  settings.member.rules = scenario_.rules;
  for (int i = 0; i < (agent.newcomer ? std::ssize(agents_) : 1); ++i) {
    if (i != index) settings.member.endpoints.push_back({std::to_string(i), 1});
  }
  settings.leads_first = index == 0 && !agent.newcomer;
  settings.coordinator.min_nodes = min_nodes_;
  settings.coordinator.max_nodes = max_nodes_;
  settings.coordinator.max_restarts = max_restarts_;
  settings.coordinator.join_timeout = milliseconds(120000);
  settings.coordinator.ready_timeout = milliseconds(kReadyTimeout / kMs);
  settings.coordinator.rules = scenario_.rules;
  if (scenario_.arbiter) configure_arbiter(index, settings);
  const std::int32_t most = max_restarts_;
  if (scenario_.judge) {
    settings.coordinator.judge = [most, judge = scenario_.judge](const FailureReport& report, const Budget& before) {
      return judge(report, before, most);
    };
    return settings;
  }
  settings.coordinator.judge = [most](const FailureReport&, const Budget& before) {
    Verdict verdict;
    verdict.restart = before.history.used < most;
    verdict.exit_code = 7;
    verdict.why = "the restarts are spent";
    verdict.after = before;
    ++verdict.after.history.used;
    if (verdict.restart) ++verdict.after.restart_count;
    return verdict;
  };
  return settings;
}

void World::trace_states() {
  for (std::size_t i = 0; i < agents_.size() && scenario_.trace; ++i) {
    if (!agents_[i].node) continue;
    const Coordinator* coordinator = agents_[i].node->coordinator();
    trace(name(static_cast<int>(i)) + " " + describe(agents_[i].node->member().state()) +
          (agents_[i].training ? ", trains" : "") + (agents_[i].node->member().searching() ? ", looks" : "") +
          (coordinator != nullptr ? ", leads and waits for " + coordinator->waits_for() : std::string()));
  }
}

Result World::run() {
  while (!events_.empty() && result_.violation.empty() && !result_.excused) {
    const Event event = events_.top();
    events_.pop();
    account(event.time);
    time_ = event.time;
    if (job_over_ && alive_ == 0) break;
    if (result_.at_work_again_s >= 0) break;
    // After the end of the job the time limit is doubled, because nodes that were cut off may not have received the end yet.
    if (time_ > faults_end_ + (job_over_ ? 2 : 1) * kRecovery) {
      // The job may need nodes for a majority that have left permanently or have lost their node id. So it may never end.
      if (leaving_happens_ || nodes_are_reclaimed_ || records_were_lost_ || node_left_) break;
      trace_states();
      result_.stuck = "the job did not end within " + std::to_string(kRecovery / kSecond) + " s after the last fault";
      trace("STUCK: " + result_.stuck);
      break;
    }
    ++result_.events;
    if (result_.events > std::max(kMaxEvents, 400 * std::ssize(agents_)))
      violate("too much happens: a machine does not come to rest");
    handle(event);
  }
  result_.rounds = std::ssize(rounds_);
  for (const Agent& agent : agents_) result_.counted += agent.node ? agent.node->counted() : 0;
  return std::move(result_);
}

void World::handle(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kPump:
      return pump(event.a, static_cast<int>(event.b));
    case Event::Kind::kConnect:
      return connect(event.a);
    case Event::Kind::kFault:
      return fault();
    case Event::Kind::kRecover:
      return recover();
    case Event::Kind::kPowerLoss:
      if (event.life == agents_[static_cast<std::size_t>(event.a)].life && !recovering_) kill(event.a, /*silent=*/true);
      return;
    case Event::Kind::kDiskFull:
      agents_[static_cast<std::size_t>(event.a)].remembers = false;
      return trace(name(event.a) + ": its disk is full");
    case Event::Kind::kDiskFree:
      agents_[static_cast<std::size_t>(event.a)].remembers = true;
      return trace(name(event.a) + ": its disk has space again");
    case Event::Kind::kDeathNotice:
      return send_death_notice(event);
    case Event::Kind::kArbiterReceives:
      return arbiter_receives(event);
    case Event::Kind::kAgentCall:
    case Event::Kind::kHostCall:
      return call(event);
    case Event::Kind::kStuck:
      return get_stuck(event.a);
    case Event::Kind::kSleep:
      return sleep(event.a, event.b);
    case Event::Kind::kWake:
      return wake(event.a);
    case Event::Kind::kLoopBlocks:
      return block_loop(event.a, event.b);
    case Event::Kind::kLoseCoordinator:
      return lose_coordinator();
    case Event::Kind::kSignal:
      return signal(event.a);
    case Event::Kind::kLeave:
      return leave(event.a >= 0 ? event.a : coordinator_now(), event.b != 0);
    case Event::Kind::kCutOff:
      return cut_off(event.b);
    case Event::Kind::kKilled:
      if (const int victim = coordinator_now(); agents_[static_cast<std::size_t>(victim)].node && !recovering_ && !job_over_)
        kill(victim, /*silent=*/false);
      return;
    case Event::Kind::kLostDuringSignals:
      if (event.life != agents_[static_cast<std::size_t>(event.a)].life || job_over_) return;
      lost_during_signals_ = true;
      return kill(event.a, /*silent=*/false);
    case Event::Kind::kDiskStalls:
      return stall_disk(event.a);
    case Event::Kind::kWritten:
      if (event.life == agents_[static_cast<std::size_t>(event.a)].life) complete_write(event.a);
      return;
    case Event::Kind::kStart:
      if (!agents_[static_cast<std::size_t>(event.a)].node && event.life == agents_[static_cast<std::size_t>(event.a)].life) {
        start(event.a);
      }
      return;
    default:
      break;
  }
  Agent& agent = agents_[static_cast<std::size_t>(event.a)];
  if (!agent.node || event.life != agent.life) return;
  if (agent.frozen_until > time_) {
    schedule(resumes_at(agent), event.kind, event.a, event.b, event.life, event.job);
    return;
  }
  switch (event.kind) {
    case Event::Kind::kTimer:
      if (event.time < agent.timer_at) return;
      agent.timer_at = kNever;
      return deliver(event.a, node_event::Tick{});
    case Event::Kind::kTimeout:  // a connection attempt times out
      return deliver(event.a, node_event::LinkClosed{kDialled | static_cast<LinkId>(event.b), event.job != 0});
    case Event::Kind::kArbiterAnswers:
      return arbiter_answers(event);
    case Event::Kind::kUnstuck:
      return unstick(event.a);
    case Event::Kind::kWriteReported:
      return report_write(event.a, event.b != 0);
    case Event::Kind::kWorkersFail: {
      if (event.job != agent.job || !agent.training || agent.ending || agent.stuck) return;
      trace(name(event.a) + ": a worker fails");
      if (agent.launcher) return fail_in_launcher(event);
      rounds_[agent.round].failed = rounds_[agent.round].worker_failed = true;
      FailureReport report;
      report.failed.status.code = 7;
      report.time_ns = time_ + agent.skew;
      report.message = "exit code 7";
      if (leaving_happens_ && chance(15)) {
        agent.broken = true;
        report.failed.cause = Cause::kDevice;
      }
      agent.ending = true;
      schedule(time_ + between(kMs, 200 * kMs), Event::Kind::kWorkersEnd, event.a, 0, agent.life, agent.job);
      return deliver(event.a, node_event::Local{report});
    }
    case Event::Kind::kWorkersEnd:
      if (event.job != agent.job || (!agent.training && event.b == 0 && !agent.end_is_pending)) return;
      workers_gone(agent, event.a);
      if (agent.stuck) {
        agent.end_is_pending = true;
        return;
      }
      agent.end_is_pending = false;
      // Cancels all other scheduled ends of these workers. If a write was slow, the workers may have been stopped twice, but
      // their end must be reported once.
      if (disks_are_slow_) ++agent.job;
      return deliver(
          event.a,
          node_event::Local{member_event::WorkersEnded{
              .saved = true, .master_port = 2000, .leaves_with = agent.broken ? std::optional(kBrokenDevice) : std::nullopt}});
    case Event::Kind::kWorkersDone:
      if (event.job != agent.job || !agent.training || agent.ending || agent.stuck) return;
      if (agent.launcher) return agent.launcher->finish_workers();
      workers_gone(agent, event.a);
      trace(name(event.a) + ": its workers are done");
      if (agent.node->coordinator() != nullptr && agent.node->member().following()) {
        note_received(event.a, event.a, Done{agent.round});
      }
      return deliver(event.a, node_event::Local{member_event::WorkersDone{.master_port = 2000}});
    default:
      return;
  }
}

void World::start(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (job_over_ || signals_came_) return;
  ++agent.life;
  ++agent.incarnation;
  agent.powered = true;
  std::erase_if(orphans_, [&](const Orphans& one) { return one.agent == index || one.until <= time_; });
  agent.got_stop_signal = false;
  agent.gave_up = false;
  agent.known_id.reset();
  if (agent.disk.self) agent.known_id = agent.disk.self->id;
  if (agent.left || agent.life > 1) ++identity_changes_;
  if (agent.left) {  // A node that has left returns with a new node id.
    agent.left = false;
    agent.newcomer = index != 0 || !memory_is_lost_;
    for (std::uint8_t& byte : agent.id) byte = static_cast<std::uint8_t>(random_());
  } else if (agent.life > 1) {  // a new node id, which the node uses if it gives up the old node id
    agent.id[15] = static_cast<std::uint8_t>(agent.life);
    agent.id[14] = static_cast<std::uint8_t>(agent.life >> 8U);
    // term_apart() depends on this byte, so it must vary between node ids.
    if (!agent.disk.self) agent.id[3] = static_cast<std::uint8_t>(agent.id[3] + 1);
  }
  agent.timer_at = kNever;
  agent.coordinates = false;
  agent.term_seen = 0;
  agent.both_votes_round.reset();
  trace(name(index) + " starts");
  disturb(agent, time_);
  if (!agent.disk.self) agent.id_since = agent.life;
  agent.outvoted = false;
  const bool is_new = !agent.disk.had_storage || (agent.disk.self && agent.disk.self->record.place_is_new);
  if (is_new && agent.life > 2) agent.probing_since = time_;
  agent.node = std::make_unique<Node>(settings_for(index), agent.disk, now_of(agent));
  ++alive_;
  agent.gate = RecordGate(scenario_.rules, agent.node->member().record());
  make_launcher(index);
  deliver(index, node_event::Begin{});
}

// Ends the process. If `silent` is true, the host has lost power, so connections are not closed.
void World::end_process(int index, bool silent) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node) return;
  if (agent.training && !silent && agent.guardian_delay > 0 && agent.asleep_until <= time_) {
    const Nanos granted = true_time(agent, agent.until_local) + agent.guardian_delay;
    orphans_.push_back(
        {index, agent.round, std::min(granted, time_ + agent.guardian_delay * (kReapedWithin / kMaxGuardianDelay))});
  }
  workers_gone(agent, index);
  result_.counted += agent.node->counted();
  --alive_;
  agent.node.reset();
  retire_launcher(agent);
  // A write that is in progress reaches the disk only in half of the cases.
  if (!agent.writing.empty() && disk_random_() % 2 == 0) remember(agent, agent.writing.front());
  agent.writing.clear();
  agent.stuck = agent.end_is_pending = false;
  agent.waits_since = 0;
  if (!job_over_) disturb(agent, time_);
  agent.frozen_until = agent.asleep_until = 0;
  agent.powered = !silent;
  ++agent.life;
  schedule_death_notice(agent, index, silent);
  for (const auto& [id, link_index] : agent.links) {
    Link& link = links_[static_cast<std::size_t>(link_index)];
    const int end = link.end[0] == index ? 0 : 1;
    if (link.open[end] && !silent) send(link_index, end, Fin{});
    link.open[end] = false;
  }
  agent.links.clear();
}

void World::deliver(int index, const NodeEvent& event) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  const Before before = before_event(agent);
  std::vector<NodeAction> actions = agent.node->on(event, now_of(agent));
  result_.actions += std::ssize(actions);
  result_.max_actions = std::max(result_.max_actions, std::ssize(actions));
  if (disks_are_slow_) {
    for (const NodeAction& action : actions) {
      if (const auto* close = std::get_if<node_action::CloseLink>(&action)) note_closed(index, *close);
    }
    actions = agent.gate.pass(std::move(actions));
  }
  perform(index, std::move(actions), before);
  if (agent.node && agent.gate.take_unstarted()) deliver(index, node_event::Local{member_event::WorkersEnded{}});
}

Before World::before_event(const Agent& agent) const {
  const Coordinator* const leads = agent.node->coordinator();
  return {.leads = leads,
          .round = leads != nullptr ? leads->round() : RoundId{},
          .away = agent.node->away(),
          .runs = leads != nullptr && leads->waits_for() == "the running round"};
}

void World::perform(int index, std::vector<NodeAction> actions, const Before& before) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  const auto& [leads, round, away, runs] = before;
  for (NodeAction& action : actions) {
    if (!agent.node) break;
    carry_out(index, action);
  }
  for (const int started : std::exchange(started_, {})) check_training(started);
  const bool same_round = runs && agent.node && agent.node->coordinator() == leads && leads->round() == round;
  // The end of a round is checked only if the round was running under the same coordinator before this event.
  for (const std::string& why : std::exchange(ended_, {})) {
    if (same_round) check_round_over(index, round, why);
  }
  // The coordinator's own node is counted as a member even if it starts later than the other nodes.
  for (const RoundId& id : std::exchange(released_, {})) {
    // If a slow disk delays a release, some nodes of the round may have ended before the release is sent.
    if (!disks_are_slow_ && std::ssize(rounds_[id].members) + 1 + away < rounds_[id].first.nodes)
      violate("round " + name(id) + " has more nodes than those that got it");
  }
  if (!agent.node) return;
  check_coordinator(index);
  if (workers_get_stuck_) check_waiting(agent);
  set_timer(index);
}

// Stores the record in the same way as record_file.hpp. If the record cannot be written, the earlier record is removed, and
// only the fact remains that a record existed. In that case the function returns false.
bool World::remember(Agent& agent, const member_action::Remember& action) {
  agent.disk = {};
  if (agent.remembers) {
    agent.disk.self = RestoredState::Identity{action.node, action.record};
  } else {
    agent.disk.job_elsewhere = true;
  }
  return agent.remembers;
}

// Marks the link as closed as soon as the coordinator has decided to close it, even if a slow disk delays the last message.
void World::note_closed(int index, const node_action::CloseLink& close) {
  if ((close.link & kDialled) != 0) return;
  const auto& links = agents_[static_cast<std::size_t>(index)].links;
  const auto link = links.find(close.link);
  if (link != links.end()) note_lost(index, links_[static_cast<std::size_t>(link->second)].end[0]);
}

void World::note_sent(int index, const node_action::ToDialler& sent) {
  check_message(sent.message);
  end_was_announced_ = end_was_announced_ || std::holds_alternative<JobOver>(sent.message);
  const auto* release = std::get_if<Release>(&sent.message);
  if (release == nullptr || !release->start || release->group_rank < 0) return;
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  const auto link = agent.links.find(sent.link);
  if (link == agent.links.end()) return;
  const Link& to = links_[static_cast<std::size_t>(link->second)];
  note_release(to.end[0], to.life[0], *release, index);
}

void World::set_timer(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  const auto deadline = agent.node->next_deadline();
  if (!deadline) return;
  const Nanos at = std::max(time_ + 1, true_time(agent, stamp_of(*deadline)));
  if (agent.timer_at <= at && agent.timer_at > time_) return;
  agent.timer_at = at;
  schedule(at, Event::Kind::kTimer, index, 0, agent.life);
}

void World::carry_out(int index, NodeAction& any) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  std::visit(
      [&](auto& action) {
        using Action = std::decay_t<decltype(action)>;
        if constexpr (std::is_same_v<Action, node_action::ToDialler>) {
          note_sent(index, action);
          const auto link = agent.links.find(action.link);
          if (link == agent.links.end()) return;
          if (std::holds_alternative<Resumed>(action.message)) {
            note_back(index, links_[static_cast<std::size_t>(link->second)].end[0]);
            ++result_.resumed;
          }
          trace_message(index, links_[static_cast<std::size_t>(link->second)].end[0], action.message);
          result_.transfers += std::holds_alternative<TransferLeadership>(action.message) ? 1 : 0;
          send(link->second, 1, std::move(action.message));
        } else if constexpr (std::is_same_v<Action, node_action::ToListener>) {
          const auto link = agent.links.find(action.link);
          if (link == agent.links.end()) return;
          trace_message(index, links_[static_cast<std::size_t>(link->second)].end[1], action.message);
          send(link->second, 0, std::move(action.message));
        } else if constexpr (std::is_same_v<Action, node_action::CloseLink>) {
          const auto found = agent.links.find(action.link);
          if (found == agent.links.end()) return;
          Link& link = links_[static_cast<std::size_t>(found->second)];
          const int end = (action.link & kDialled) != 0 ? 0 : 1;
          if (!disks_are_slow_) note_closed(index, action);
          send(found->second, end, Fin{});
          link.open[end] = false;
          agent.links.erase(found);
        } else if constexpr (std::is_same_v<Action, node_action::Finish>) {
          if (!agent.launcher) return end_agent(index, action, /*by_itself=*/false);
          agent.node_is_over = true;
          note_job_over(index, action);  // Called immediately, even if the agent is still waiting for its workers.
          agent.launcher->carry_out(action);
        } else if constexpr (std::is_same_v<Action, node_action::QueryArbiter>) {
          query_arbiter(index, action);
        } else if constexpr (std::is_same_v<Action, node_action::Dial>) {
          dial(index, action.link, action.address);
        } else if constexpr (std::is_same_v<Action, member_action::Remember>) {
          write(index, action);
        } else if constexpr (std::is_same_v<Action, coordinator_action::SetDeathNotice>) {
          agent.death_notice = action;
        } else if constexpr (std::is_same_v<Action, node_action::Forget>) {
          agent.writing.clear();
          agent.disk = {};
        } else if constexpr (std::is_same_v<Action, NodeQuery>) {
          answer(index, action);
        } else if constexpr (std::is_same_v<Action, JobAnswer>) {
          check_answer(index, action);
        } else if constexpr (std::is_same_v<Action, member_action::StartWorkers>) {
          if (scenario_.sends_queries) send_query(index);
          set_deadline(index, stamp_of(action.until));
          if (agent.launcher) {
            if (agent.node->coordinator() != nullptr) note_release(index, agent.life, action.release, index);
            return agent.launcher->carry_out(action);
          }
          start_workers(index, action);
        } else if constexpr (std::is_same_v<Action, member_action::ExtendWorkerLease>) {
          set_deadline(index, stamp_of(action.until));
        } else if constexpr (std::is_same_v<Action, member_action::StopWorkers>) {
          trace(name(index) + " stops its workers" + (action.immediately ? " immediately: " : ": ") + action.why);
          if (agent.launcher) return agent.launcher->carry_out(action);
          stop_workers(index, action.immediately);
        } else if constexpr (std::is_same_v<Action, StopAndSave>) {
          if (agent.launcher) return agent.launcher->carry_out(action);
          schedule(time_ + between(300 * kMs, kSecond), Event::Kind::kWorkersEnd, index, 0, agent.life, agent.job);
          agent.ending = true;
        } else if constexpr (std::is_same_v<Action, StopAt> || std::is_same_v<Action, member_action::DismissHeld>) {
          if (agent.launcher) agent.launcher->carry_out(action);
        } else if constexpr (std::is_same_v<Action, NodeNotice>) {
          if (action.kind == NodeNotice::Kind::kFollowing) agent.outvoted = false;
          if (action.kind == NodeNotice::Kind::kRoundOver) ended_.push_back(action.text);
          if (scenario_.trace) {
            trace(name(index) + " [" + std::to_string(static_cast<int>(action.kind)) + "] " + action.text + " " +
                  std::to_string(action.count) + "/" + std::to_string(action.of));
          }
        }
      },
      any);
}

// Sends a query from a node. Each queried node answers with the text of the query. No answer may arrive twice, even if messages
// are sent again after resets. Every second query is for a single node, which may be disconnected.
void World::send_query(int index) {
  const std::uint64_t number = next_query_++;
  NodeId to{};
  if (number % 2 == 1) single_node_queries_[number] = to = agents_[number / 2 % agents_.size()].id;
  call_later(
      index, kMs,
      [this, index, number, to] {
        deliver(index, node_event::Local{ClusterQuery{number, 100, "question " + std::to_string(number), to}});
      },
      Event::Kind::kAgentCall);
}

void World::answer(int index, const NodeQuery& query) {
  call_later(
      index, kMs,
      [this, index, query] {
        deliver(index, node_event::Local{NodeAnswer{query.requester, query.number, query.text}});
      },
      Event::Kind::kAgentCall);
}

void World::check_answer(int index, const JobAnswer& answer) {
  ++result_.answers;
  const auto alone = single_node_queries_.find(answer.number);
  if (alone != single_node_queries_.end() && answer.node != alone->second)
    violate(name(index) + " gets an answer of a node that got no query");
  const bool is_away = alone != single_node_queries_.end() && answer.text.empty();
  if (!is_away && answer.text != "question " + std::to_string(answer.number))
    violate(name(index) + " gets an answer to another query");
  // A node that has returned with a different node id may be counted twice, under both ids.
  if (answer.nodes < 1 || answer.nodes > static_cast<std::int32_t>(agents_.size()) + identity_changes_)
    violate(name(index) + " counts " + std::to_string(answer.nodes) + " nodes of " + std::to_string(agents_.size()));
  if (!answers_.emplace(answer.number, answer.node).second) violate(name(index) + " gets an answer twice");
}

// Ends the agent. `by_itself` is true if the agent's node has not sent Finish.
void World::end_agent(int index, const node_action::Finish& action, bool by_itself) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  trace(name(index) + " ends with " + std::to_string(action.exit_code) + ": " + action.why);
  if (agent.training) violate(name(index) + " ended before its workers");
  if (!by_itself && ends_the_job(agent, action)) check_end(index, action);
  if (signals_came_) check_stopped(index, action);
  check_minority(index, action);
  if (!by_itself && !agent.launcher) note_job_over(index, action);
  agent.left = agent.got_stop_signal || action.exit_code == kBrokenDevice;
  agent.death_notice = {};
  finish_writing(agent);
  end_process(index, /*silent=*/false);
  if (is_missing(action) && (recovering_ || chance(70))) {
    schedule(time_ + between(100 * kMs, 5 * kSecond), Event::Kind::kStart, index, 0, agent.life);
  }
}

// Returns true if the node ended because it did not find the other nodes. In this case the node may return.
bool World::is_missing(const node_action::Finish& action) {
  return action.exit_code == static_cast<int>(ExitCode::kPeersMissing) ||
         action.exit_code == static_cast<int>(ExitCode::kMinority) || action.exit_code == static_cast<int>(ExitCode::kUsage);
}

bool World::ends_the_job(const Agent& agent, const node_action::Finish& action) {
  const bool left_alone = agent.got_stop_signal && action.why.starts_with("stopped by a signal");
  return !is_missing(action) && !left_alone && action.exit_code != kBrokenDevice;
}

void World::note_job_over(int index, const node_action::Finish& action) {
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  // `too_few` is true if the job ended because too few nodes joined. All nodes then delete their records, so they start a
  // different job when they are started again.
  const bool too_few = action.exit_code == static_cast<int>(ExitCode::kPeersMissing) && agent.coordinates;
  if (too_few && agent.node->member().record().knows_round()) result_.excused = true;
  if (!ends_the_job(agent, action) || job_over_) return;
  job_over_ = true;
  job_over_at_ = time_;
  const auto leads = [](const Agent& other) { return other.coordinates; };
  const auto decider = std::find_if(agents_.begin(), agents_.end(), leads);
  decided_by_ = agent.coordinates || decider == agents_.end() ? index : static_cast<int>(decider - agents_.begin());
  const bool has_round = agent.node->member().state().current.exists();
  // The end of the job was proposed to this node, and it has not found the other nodes. But other nodes that received the
  // proposal may have started the job again.
  const bool found_no_job = !agent.coordinates && !end_was_announced_;
  ended_by_itself_ = !has_round || found_no_job || action.why.find(" by a signal ") != std::string::npos;
  result_.exit_code = action.exit_code;
}

Result simulate(const Scenario& scenario) {
  return World(scenario).run();
}

}  // namespace ddprun::rendezvous::simulation
