// Implementation of job_place.hpp.
#include "trainer/job/job_place.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <variant>

#include "trainer/parallel/process_group.hpp"

namespace ddprun::trainer {
namespace {

// A collective that can end does so immediately. A standby takes over in less than this time, so a longer wait would delay it.
constexpr std::chrono::milliseconds kPatienceWithCollectives{100};

}  // namespace

void JobPlace::begin(const WorkerEnvironment& environment, const std::string& version) {
  environment_ = environment;
  if (environment_.channel_fd < 0) {
    stopping_ = std::make_unique<StoppingByStore>(gate_);
  } else {
    listen_to_agent(version);
  }
  signals_ = std::make_unique<SignalWatch>([this](int signal) { stopping_->on_signal(signal); });
}

void JobPlace::listen_to_agent(const std::string& version) {
  auto by_agent = std::make_unique<StoppingByAgent>(gate_);
  recovery_ = std::make_unique<Recovery>(environment_.generation, environment_.world_size);
  channel::Hello hello;
  hello.version = version;
  hello.pid = ::getpid();
  agent_ = std::make_unique<AgentChannel>(
      environment_.channel_fd, hello,
      [this, stop = by_agent.get(), recovery = recovery_.get()](const channel::FromAgent& message) {
        if (std::holds_alternative<channel::PositionRequest>(message)) {
          // A debugger that the agent starts is not our ancestor. Where Yama restricts ptrace to ancestors, this call allows
          // it.
          ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
          status_.tell_position();
        }
        stop->on_message(message);
        recovery->on_message(message);
        standby_.on_message(message);
      },
      [this, recovery = recovery_.get()] {
        standby_.on_agent_gone();
        recovery->on_agent_gone();
      });
  by_agent->attach(*agent_);
  recovery_->attach(*agent_);
  stopping_ = std::move(by_agent);
  status_.attach(agent_.get());
}

void JobPlace::wait_for_rank() {
  agent_->send(channel::StandbyReady{});
  take_place(environment_, standby_.wait());
}

bool JobPlace::groups_can_be_broken(c10::Device device, bool live_nccl) const {
  return recovery_ && group_can_be_broken(device, environment_, live_nccl);
}

channel::Regroup JobPlace::next_group(std::optional<std::int64_t> held) {
  status_.enter(channel::Phase::kJoining);
  channel::Regroup order{.generation = environment_.restart_count};
  if (recovery_) order = recovery_->begin_group(held.value_or(-1));
  generation_ = order.generation;
  return order;
}

void JobPlace::move_to(const channel::Regroup& place) {
  environment_.rank = place.rank;
  environment_.world_size = place.world_size;
  environment_.group_rank = place.group_rank;
  environment_.group_world_size = place.group_world_size;
}

// A job of one worker has no peers and needs neither store nor group.
void JobPlace::form_group(c10::Device device, std::chrono::milliseconds timeout, bool live_nccl) {
  GroupBreaker* const breaker = recovery_ ? &recovery_->breaker() : nullptr;
  if (environment_.world_size > 1) {
    store_ = make_store(environment_, agent(), timeout, generation_);
    if (agent()) meet_in_store(environment_, store_, generation_, timeout);
    group_ = make_process_group(environment_, store_, device, generation_, timeout, breaker, live_nccl);
  }
  peers_.emplace(group_, environment_.rank, environment_.world_size, device, breaker);
  stopping_->on_group(store_, environment_.rank, environment_.world_size, environment_.restart_count);
}

void JobPlace::leave_group() {
  peers_.reset();
  if (group_ && !recovery_->breaker().collectives().all_ended(kPatienceWithCollectives)) {
    // Gloo's thread may wait for half an hour in an interrupted collective. The group's destructor would wait for that thread,
    // so the group is leaked.
    [[maybe_unused]] c10d::ProcessGroup* const left_behind = group_.release();
    groups_left_behind_ = true;
  }
  group_.reset();
  store_.reset();
}

// NCCL's communicators wait for each other at their end. Without this call PyTorch logs a warning when the group is destroyed.
// Gloo needs no shutdown.
void JobPlace::shut_down() {
  if (group_) group_->shutdown();
}

}  // namespace ddprun::trainer
