// Implements the simulated host of a launcher (simulated_launcher.hpp). The host is a part of World (simulated_world.hpp).
#include <algorithm>
#include <utility>

#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {

class World::Host final : public LauncherHost {
 public:
  Host(World& world, int index) : world_(world), index_(index) {}

  Now now() const override { return world_.now_of(agent()); }
  std::int64_t true_time() const override { return world_.time_; }
  bool recovering() const override { return world_.recovering_; }
  bool training() const override { return agent().training; }
  bool is_stuck() const override { return agent().stuck; }
  std::int64_t kill_takes() const override {
    return std::max<Nanos>(0, std::min(agent().guardian_delay,
                                       world_.true_time(agent(), agent().until_local) + agent().guardian_delay - world_.time_));
  }
  void in_agent(std::int64_t after, std::function<void()> what) override {
    world_.call_later(index_, after, std::move(what), Event::Kind::kAgentCall);
  }
  void on_host(std::int64_t after, std::function<void()> what) override {
    world_.call_later(index_, after, std::move(what), Event::Kind::kHostCall);
  }
  void to_node(MemberEvent event) override {
    in_agent(0, [this, event = std::move(event)] {
      const bool done = std::holds_alternative<member_event::WorkersDone>(event);
      if (done && agent().node->coordinator() != nullptr && agent().node->member().following())
        world_.note_received(index_, index_, Done{agent().round});
      world_.deliver(index_, node_event::Local{event});
    });
  }
  void work_begins(const Release& release) override {
    world_.begin_work(index_, release);
    world_.check_training(index_);
    world_.started_.clear();
  }
  void work_ends() override { world_.workers_gone(agent(), index_); }
  void is_stopping() override { agent().ending = true; }
  void worker_has_failed() override {
    world_.rounds_[agent().round].failed = world_.rounds_[agent().round].worker_failed = true;
  }
  void worker_may_have_failed() override {
    world_.rounds_[agent().round].failed = world_.rounds_[agent().round].may_have_failed = true;
  }
  void round_is_lost() override { world_.rounds_[agent().round].failed = true; }
  void saves_at(std::int64_t step) override {
    const auto [known, is_new] = world_.saved_at_.try_emplace(agent().round, step);
    if (!is_new && known->second != step) violate(World::name(index_) + " saves at another step than the others of its round");
  }
  void no_deadline() override { agent().has_deadline = false; }
  void leaves_permanently() override { world_.node_left_ = true; }
  void hangs(bool so) override { agent().hangs = so; }
  void finish(int exit_code, const std::string& why) override {
    // The launcher may exit before its node has sent Finish, after a second signal or if a worker cannot be killed.
    world_.end_agent(index_, {exit_code, why}, !agent().node_is_over);
  }
  void violate(const std::string& what) override { world_.violate(what); }
  void trace(const std::string& line) override { world_.trace(World::name(index_) + ": " + line); }

 private:
  Agent& agent() const { return world_.agents_[static_cast<std::size_t>(index_)]; }
  World& world_;
  int index_;
};

void World::make_launcher(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!scenario_.launcher) return;
  agent.has_deadline = agent.node_is_over = false;
  agent.host = std::make_unique<Host>(*this, index);
  agent.launcher = scenario_.launcher(
      *agent.host, {.seed = scenario_.seed,
                    .chance = scenario_.seed * 1000003 + static_cast<std::uint64_t>(index) * 1009 + agent.life,
                    .workers = agent.local_world_size});
  agent.launcher->begin();
}

// Keeps the launcher object until the end of the simulation, because the call stack may still contain one of its functions.
void World::retire_launcher(Agent& agent) {
  if (!agent.launcher) return;
  retired_launchers_.push_back(std::move(agent.launcher));
  retired_hosts_.push_back(std::move(agent.host));
  agent.has_deadline = agent.hangs = false;
}

void World::call_later(int index, Nanos after, std::function<void()> what, Event::Kind kind) {
  const std::int64_t number = next_call_++;
  calls_.emplace(
      number,
      Call{.kind = kind, .agent = index, .life = agents_[static_cast<std::size_t>(index)].life, .what = std::move(what)});
  schedule(time_ + after, kind, index, number, agents_[static_cast<std::size_t>(index)].life);
}

void World::call(const Event& event) {
  const auto found = calls_.find(event.b);
  if (found == calls_.end()) return;
  Agent& agent = agents_[static_cast<std::size_t>(event.a)];
  if (!agent.node || event.life != agent.life) {
    calls_.erase(found);
    return;
  }
  const bool waits = event.kind == Event::Kind::kAgentCall ? agent.frozen_until > time_ : agent.asleep_until > time_;
  found->second.waits = waits;
  if (waits) {
    const Nanos at = event.kind == Event::Kind::kAgentCall ? resumes_at(agent) : agent.asleep_until;
    return schedule(at, event.kind, event.a, event.b, event.life);
  }
  const std::function<void()> what = std::move(found->second.what);
  calls_.erase(found);
  what();
}

// Reschedules the calls that waited for the end of a freeze. Call this when a freeze has ended early.
void World::hasten_calls() {
  for (const auto& [number, call] : calls_) {
    const Agent& agent = agents_[static_cast<std::size_t>(call.agent)];
    if (call.waits) schedule(std::max(time_, agent.frozen_until), call.kind, call.agent, number, call.life);
  }
}

// Sets the time at which the guardian kills the workers. The lease is extended often, so the guardian does not set a timer for
// each extension. When its timer fires, it compares the time with the newest value.
void World::set_deadline(int index, Nanos until_local) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  agent.until_local = until_local;
  if (!agent.launcher || std::exchange(agent.has_deadline, true)) return;
  watch_deadline(index);
}

void World::watch_deadline(int index) {
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  const Nanos at = true_time(agent, agent.until_local) + agent.guardian_delay;
  call_later(
      index, std::max<Nanos>(0, at - time_),
      [this, index] {
        Agent& now = agents_[static_cast<std::size_t>(index)];
        if (!now.has_deadline) return;
        if (local(now, time_ - now.guardian_delay) < now.until_local) return watch_deadline(index);
        now.has_deadline = false;
        end_by_guardian(index);
      },
      Event::Kind::kHostCall);
}

void World::end_by_guardian(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (agent.training) {
    trace(name(index) + ": its guardian ends its workers");
    rounds_[agent.round].failed = true;
  }
  agent.launcher->guardian_ends_workers();
}

// Makes a worker fail. Workers of other nodes may fail as a consequence, before their nodes are informed that the round has
// ended.
void World::fail_in_launcher(const Event& event) {
  Agent& agent = agents_[static_cast<std::size_t>(event.a)];
  agent.broken = agent.launcher->fail_a_worker(leaving_happens_ && later_chance(15));
  if (event.b != 0 || !later_chance(30)) return;
  for (int i = 0; i < std::ssize(agents_); ++i) {
    const Agent& other = agents_[static_cast<std::size_t>(i)];
    if (i == event.a || !other.training || other.round != agent.round) continue;
    schedule(time_ + later_between(0, 60 * kMs), Event::Kind::kWorkersFail, i, 1, other.life, other.job);
  }
}

}  // namespace ddprun::rendezvous::simulation
