#include "trainer/job/job_place.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <variant>

#include "trainer/parallel/process_group.hpp"
#include "trainer/parallel/shared/shared_backend.hpp"

namespace ddprun::trainer {
namespace {

// The maximum wait for the collectives of an aborted process group to end. Most collectives end immediately, but some never
// end. A standby worker replaces a lost worker in less than this time, so a longer wait would delay the recovery.
constexpr std::chrono::milliseconds kCollectivesTimeout{100};

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
          // The agent may start a debugger, which is not an ancestor of this process. If the kernel's Yama module restricts
          // ptrace to ancestors, this call allows the debugger to attach.
          ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
          status_.send_position();
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

// With a single worker there is no communication, so neither a store nor a process group is created.
void JobPlace::form_group(c10::Device device, GroupRequest request) {
  GroupBreaker* const breaker = recovery_ ? &recovery_->breaker() : nullptr;
  if (environment_.world_size > 1) {
    store_ = make_store(environment_, agent(), request.timeout, generation_);
    if (agent()) barrier_in_store(environment_, store_, generation_, request.timeout);
    request.breaker = breaker;
    group_ = make_process_group(environment_, store_, device, generation_, request);
    if (SharedBackend* const shared = shared_backend_of(*group_)) {
      shared->set_on_wait([this](bool begins) { note_wait(begins); });
    }
  }
  peers_.emplace(group_, environment_.rank, environment_.world_size, device, breaker);
  stopping_->on_group(store_, environment_.rank, environment_.world_size, environment_.restart_count);
}

// A rank that waits in the all-reduce of a bucket is still in its backward pass. To diagnose a hang, ddprun must distinguish
// this rank from a rank that does not reach the all-reduce. So during the wait, the stage of this rank is the stage at the end
// of a backward pass.
void JobPlace::note_wait(bool begins) {
  if (begins) {
    computes_ = status_.stage() == channel::Stage::kForward;
    if (computes_) status_.at(channel::Stage::kBackward);
  } else if (computes_) {
    status_.at(channel::Stage::kForward);
  }
}

void JobPlace::leave_group() {
  peers_.reset();
  if (group_ && !recovery_->breaker().collectives().all_ended(kCollectivesTimeout)) {
    // A Gloo thread may still block in an interrupted collective, for up to half an hour. The group's destructor would wait for
    // that thread, so the group is leaked deliberately.
    [[maybe_unused]] c10d::ProcessGroup* const leaked = group_.release();
    leaked_groups_ = true;
  }
  group_.reset();
  store_.reset();
}

// Only NCCL needs this: the communicators of all ranks wait for each other when they are destroyed, and PyTorch warns if a
// group is destroyed without shutdown(). Gloo needs no shutdown.
void JobPlace::shut_down() {
  if (group_) group_->shutdown();
}

}  // namespace ddprun::trainer
