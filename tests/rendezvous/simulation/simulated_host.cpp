// The part of World (simulated_world.hpp) that implements the host of a launcher (simulated_launcher.hpp).
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
    return std::max<Nanos>(0, std::min(agent().guardian_late,
                                       world_.true_time(agent(), agent().until_local) + agent().guardian_late - world_.time_));
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
        world_.note_heard(index_, index_, Done{agent().round});
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
  void leaves_for_good() override { world_.somebody_left_ = true; }
  void hangs(bool so) override { agent().hangs = so; }
  void finish(int exit_code, const std::string& why) override {
    // Its node may not know of it, after a second signal or with a worker that cannot be killed.
    world_.end_agent(index_, {exit_code, why}, !agent().node_is_over);
  }
  void violate(const std::string& what) override { world_.violate(what); }
  void tell(const std::string& line) override { world_.tell(World::name(index_) + ": " + line); }

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

// The launcher may be active further up the stack.
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
    const Nanos at = event.kind == Event::Kind::kAgentCall ? goes_on_at(agent) : agent.asleep_until;
    return schedule(at, event.kind, event.a, event.b, event.life);
  }
  const std::function<void()> what = std::move(found->second.what);
  calls_.erase(found);
  what();
}

// Calls that waited for the end of a freeze which ends early.
void World::hasten_calls() {
  for (const auto& [number, call] : calls_) {
    const Agent& agent = agents_[static_cast<std::size_t>(call.agent)];
    if (call.waits) schedule(std::max(time_, agent.frozen_until), call.kind, call.agent, number, call.life);
  }
}

// The guardian checks when the grant may be over, since the grant is extended often.
void World::set_deadline(int index, Nanos until_local) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  agent.until_local = until_local;
  if (!agent.launcher || std::exchange(agent.has_deadline, true)) return;
  watch_deadline(index);
}

void World::watch_deadline(int index) {
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  const Nanos at = true_time(agent, agent.until_local) + agent.guardian_late;
  call_later(
      index, std::max<Nanos>(0, at - time_),
      [this, index] {
        Agent& now = agents_[static_cast<std::size_t>(index)];
        if (!now.has_deadline) return;
        if (local(now, time_ - now.guardian_late) < now.until_local) return watch_deadline(index);
        now.has_deadline = false;
        end_by_guardian(index);
      },
      Event::Kind::kHostCall);
}

void World::end_by_guardian(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (agent.training) {
    tell(name(index) + ": its guardian ends its workers");
    rounds_[agent.round].failed = true;
  }
  agent.launcher->guardian_ends_workers();
}

// Workers of other nodes may also fail because of it, before their node gets the end of the round.
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
