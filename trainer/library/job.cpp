// Implementation of sdk/include/ddprun/job.hpp. The loop does the same as ddptrain's loop (trainer/life/worker.cpp), but uses
// no config of ddptrain. After each lost rank it forms a new process group.
#include <ddprun/job.hpp>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <cstdio>
#include <exception>
#include <future>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/exit_code.hpp"
#include "common/channel/named_metrics.hpp"
#include "trainer/job/failure_message.hpp"
#include "trainer/job/job_place.hpp"
#include "trainer/library/checkpointing_impl.hpp"
#include "trainer/library/group_impl.hpp"
#include "trainer/library/state_impl.hpp"
#include "trainer/loop/seeds.hpp"
#include "trainer/parallel/device.hpp"
#include "trainer/parallel/state_digest.hpp"
#include "trainer/state/program_builds.hpp"
#include "trainer/state/state_comparison.hpp"
#include "trainer/state/state_sharing.hpp"

namespace ddprun {
namespace {

using std::chrono::steady_clock;
using trainer::StateOrigin;

constexpr std::chrono::milliseconds kProgressEvery{200};  // minimum time between progress messages
constexpr std::chrono::seconds kExchangeInterval{1};      // interval between the ranks' messages while they wait for a save
constexpr std::chrono::seconds kMaxWaitForSave{30};       // maximum wait for a save in progress when the process fails
constexpr std::size_t kBroadcastBytes = 250u << 20;

TrainConfig::Device device_wanted(JobOptions::Device wanted) {
  switch (wanted) {
    case JobOptions::Device::kCpu:
      return TrainConfig::Device::kCpu;
    case JobOptions::Device::kCuda:
      return TrainConfig::Device::kCuda;
    case JobOptions::Device::kAuto:
      break;
  }
  return TrainConfig::Device::kAuto;
}

// Sends progress to the agent a few times a second, and for the last step.
class ProgressReporter {
 public:
  ProgressReporter(trainer::AgentChannel* agent, int rank) : agent_(agent), rank_(rank) {}

  void figure(const std::string& name, double value) {
    if (agent_ && rank_ == 0) metrics_.set(name, value);
  }
  void report(std::int64_t step, std::int64_t total) {
    const auto now = steady_clock::now();
    if (!agent_ || step == 0 || (step != total && now - last_sent_ < kProgressEvery)) return;
    last_sent_ = now;
    channel::Progress message{.step = step, .steps_total = total};
    metrics_.add_to(message);
    metrics_.clear();
    agent_->send(message);
  }

 private:
  trainer::AgentChannel* agent_;
  int rank_;
  steady_clock::time_point last_sent_;
  channel::NamedMetrics metrics_;
};

// Broadcasts the weights and buffers of rank 0. All ranks must call this. It is needed at the start of a new run, because the
// ranks may have different random initial weights.
void take_weights_of_rank_0(trainer::TrainingState& state, const trainer::Peers& peers) {
  if (peers.world() == 1) return;
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> tensors;
  for (const auto* list : {&state.parameters, &state.buffers}) {
    for (const auto& entry : *list) tensors.push_back(entry.tensor.detach());
  }
  c10d::broadcast_coalesced(peers.group(), tensors, kBroadcastBytes);
}

// Verifies that all ranks loaded the same checkpoint, since nodes may have separate folders. All ranks must call this.
void require_one_checkpoint(const trainer::TrainingState& state, const trainer::Peers& peers) {
  std::vector<at::Tensor> tensors;
  for (const trainer::StateTensor& one : trainer::state_map(state)) tensors.push_back(one.entry.tensor);
  const std::vector<std::int64_t> digest = trainer::state_digest(tensors);
  if (peers.all_equal(digest)) return;
  throw UsageError("the ranks have read different checkpoints of step " + std::to_string(state.step) +
                   ": use the same checkpoint folder on all ranks, or remove the checkpoints that do not belong to this run");
}

// Throws if the last save failed. Without this error, the job would end with exit code 0, although the steps since the last
// checkpoint are lost.
void require_saved(Checkpointing::Impl& saves) {
  try {
    saves.rethrow_finished();
  } catch (const std::system_error& error) {
    throw trainer::UnsavedError(
        std::string("the last checkpoint could not be saved: ") + error.what() +
        ". Free disk space, or check the folder and its permissions. Then start the job again: it resumes from the newest "
        "checkpoint");
  }
}

}  // namespace

struct Job::Impl {
  std::string program;
  JobOptions options;
  trainer::JobPlace place{};
  c10::Device device = c10::kCPU;
  trainer::ProgramBuilds builds{};
  std::shared_future<trainer::StateDigest> own_program{};  // digest of this program's file, computed in the background

  int run(State& state, Checkpointing* checkpoints, const std::function<void(Group&)>& train);

 private:
  int train_in_group(State& state, Checkpointing::Impl* saves, const std::function<void(Group&)>& train);
  void agree(State& state, Checkpointing::Impl* saves);
  void save_last(const trainer::TrainingState& state, Checkpointing::Impl* saves);
  [[noreturn]] void fail(const std::exception_ptr& error, const Checkpointing::Impl* saves);
};

Job::Job(std::string program, const JobOptions& options) : impl_(new Impl{.program = std::move(program), .options = options}) {
  trainer::block_stop_signals();
  const trainer::WorkerEnvironment environment = trainer::read_environment();
  impl_->place.begin(environment, impl_->program);
  if (auto* agent = impl_->place.agent()) agent->send(channel::SavesOnStop{});
  impl_->device = trainer::choose_device(device_wanted(options.device), environment, trainer::Fallback::kCpu);
}

Job::~Job() = default;

int Job::rank() const {
  return impl_->place.environment().rank;
}
int Job::local_rank() const {
  return impl_->place.environment().local_rank;
}
int Job::world() const {
  return impl_->place.environment().world_size;
}
c10::Device Job::device() const {
  return impl_->device;
}

int Job::run(State& state, Checkpointing& checkpoints, const std::function<void(Group&)>& train) {
  return impl_->run(state, &checkpoints, train);
}
int Job::run(State& state, const std::function<void(Group&)>& train) {
  return impl_->run(state, nullptr, train);
}

int Job::Impl::run(State& state, Checkpointing* checkpoints, const std::function<void(Group&)>& train) {
  Checkpointing::Impl* const saves = checkpoints ? &checkpoints->impl() : nullptr;
  trainer::TrainingState& training = state.impl().training;
  try {
    if (saves) {
      saves->warn = [name = program](const std::string& message) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), message.c_str());
      };
      saves->published = [this](const channel::CheckpointPublished& published) {
        if (auto* agent = place.agent()) agent->send(published);
      };
    }
    if (place.recovery()) own_program = std::async(std::launch::async, trainer::digest_of_own_program).share();
    training.can_undo = place.groups_can_be_broken(device, /*live_nccl=*/false);
    if (training.can_undo) place.agent()->send(channel::Regroupable{});
    while (true) {
      try {
        const int code = train_in_group(state, saves, train);
        if (saves) saves->published = nullptr;  // the callback uses the job, and the Checkpointing object may outlive the job
        if (place.has_leaked_groups()) trainer::exit_now(code);
        return code;
      } catch (...) {
        if (!place.recovery() || !place.recovery()->survives(std::current_exception())) throw;
      }
      StateOrigin& origin = state.impl().origin;
      const bool undone = trainer::undo_step(training);
      if (!undone || !trainer::is_whole(origin)) origin = StateOrigin::kNothing;
      place.leave_group();
    }
  } catch (...) {
    fail(std::current_exception(), saves);
  }
}

int Job::Impl::train_in_group(State& state, Checkpointing::Impl* saves, const std::function<void(Group&)>& train) {
  trainer::TrainingState& training = state.impl().training;
  const StateOrigin before = state.impl().origin;
  const channel::Regroup order = place.next_group(trainer::is_whole(before) ? std::optional(training.step) : std::nullopt);
  if (order.rank >= 0) {
    if (saves && order.rank != place.environment().rank) saves->release_claim();
    place.move_to(order);
  }
  place.form_group(device,
                   {.timeout = options.timeout, .bucket_bytes = trainer::bucket_memory(trainer::trained_parameters(training))});
  training.summation = place.peers().summation();
  agree(state, saves);
  const trainer::Peers& peers = place.peers();
  training.world = peers.world();
  if (auto* agent = place.agent()) agent->send(channel::GroupFormed{.generation = place.generation(), .step = training.step});
  place.status().reach(training.step, 0);
  place.status().enter(channel::Phase::kRunning);

  ProgressReporter progress(place.agent(), peers.rank());
  const bool writes = saves && peers.rank() == 0;
  Group::Impl inside{.place = place,
                     .training = training,
                     .device = device,
                     .finished =
                         [&](std::int64_t total) {
                           progress.report(training.step, total);
                           if (writes) saves->save_if_due(training);
                         },
                     .figure = [&](const std::string& name, double value) { progress.figure(name, value); },
                     .reached = training.step};
  Group group(inside);
  train(group);
  if (saves) save_last(training, writes ? saves : nullptr);
  place.status().enter(channel::Phase::kDone);
  peers.barrier();
  place.shut_down();
  return static_cast<int>(inside.stopped ? ExitCode::kPreempted : ExitCode::kDone);
}

// Makes the training state of all ranks equal. All ranks must call this. The state comes from survivors of a failure, else from
// a checkpoint, else from rank 0's initial weights.
void Job::Impl::agree(State& state, Checkpointing::Impl* saves) {
  trainer::TrainingState& training = state.impl().training;
  StateOrigin& origin = state.impl().origin;
  const trainer::Peers& peers = place.peers();
  if (place.recovery()) {
    const auto progress = builds.agree(own_program.get(), trainer::progress_of(training, origin), peers);
    const trainer::Sharing sharing = trainer::share_state(training, origin, peers, progress);
    if (origin == StateOrigin::kSurvivors) return trainer::compare_states(training, peers, sharing.holders);
  }
  const bool incomplete = origin == StateOrigin::kNothing;  // true if this rank's state was only partly received or updated
  origin = StateOrigin::kUndecided;
  if (saves && saves->load(training)) origin = StateOrigin::kCheckpoint;
  trainer::share_state(training, origin, peers);
  if (trainer::is_whole(origin)) {
    require_one_checkpoint(training, peers);
    origin = StateOrigin::kCheckpoint;
  } else if (peers.largest(incomplete ? 1 : 0) > 0) {
    throw std::runtime_error(
        "no rank has the complete training state, and there is no checkpoint: all ranks must restart from step 0");
  } else {
    take_weights_of_rank_0(training, peers);
    origin = StateOrigin::kSeed;
  }
  peers.barrier();
  if (saves && peers.rank() == 0) saves->set_bad_aside();
}

// Saves the last checkpoint. All ranks must call this. Rank 0 saves, and all ranks wait until the checkpoint is published.
// While they wait, they run a short collective each second, so that a long save does not exceed the timeout of a collective.
void Job::Impl::save_last(const trainer::TrainingState& state, Checkpointing::Impl* saves) {
  const bool saves_now = saves && state.step != state.started_from;
  if (saves_now) {
    place.status().enter(channel::Phase::kSaving);
    saves->begin(state, /*in_background=*/false);
  }
  bool saved = !saves_now;
  do {
    if (!saved) {
      saves->task.wait_at_most(kExchangeInterval);
      saved = !saves->task.busy();
      place.status().enter(channel::Phase::kSaving);  // shows the agent that this process does not hang
      if (saved) require_saved(*saves);
    }
  } while (place.peers().smallest(saved ? 1 : 0) == 0);
}

// Exits without running destructors, as ddptrain does, because they could wait for a lost worker.
void Job::Impl::fail(const std::exception_ptr& error, const Checkpointing::Impl* saves) {
  const trainer::Failure failure = trainer::classify(error);
  std::fprintf(stderr, "%s: rank %d: %s\n", program.c_str(), place.environment().rank, failure.message.c_str());
  if (auto* agent = place.agent()) trainer::send_failure(*agent, failure, place.status(), device.str());
  if (saves) saves->task.wait_at_most(kMaxWaitForSave);
  trainer::exit_now(failure.exit_code);
}

// ---- a group ----

int Group::rank() const {
  return impl_.place.peers().rank();
}
int Group::world() const {
  return impl_.place.peers().world();
}
const c10::intrusive_ptr<c10d::ProcessGroup>& Group::process_group() const {
  return impl_.place.peers().group();
}

bool Group::next_step(std::int64_t total) {
  const std::int64_t finished = impl_.training.step;
  impl_.place.status().reach(finished, 0);
  if (finished > impl_.reached) impl_.pace.done(impl_.reached = finished);
  impl_.finished(total);
  if (finished >= total) return false;
  impl_.place.peers().check_alive();
  impl_.stopped = impl_.place.gate().may_start(finished) == trainer::StopGate::Verdict::kStop;
  impl_.samples_requested_at = trainer::StepPace::Clock::now();
  return !impl_.stopped;
}

void Group::seed_step(std::uint64_t seed) const {
  trainer::seed_generator(impl_.device, trainer::step_seed(seed, impl_.training.step, rank()));
}

void Group::figure(const std::string& name, double value) {
  impl_.figure(name, value);
}

void Group::sum(std::span<double> values) const {
  impl_.pace.waiting([&] { impl_.place.peers().sum(values); });
}

}  // namespace ddprun
