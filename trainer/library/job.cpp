// Implementation of sdk/include/ddprun/job.hpp: ddptrain's loop over groups and losses (trainer/life/worker.cpp), without its
// config.
#include <ddprun/job.hpp>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <cstdio>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/exit_code.hpp"
#include "common/channel/named_figures.hpp"
#include "trainer/job/job_place.hpp"
#include "trainer/job/last_words.hpp"
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

constexpr std::chrono::milliseconds kProgressEvery{200};  // nothing reads progress more often
constexpr std::chrono::seconds kBetweenExchanges{1};      // interval of exchanges while ranks wait for a save
constexpr std::chrono::seconds kSettle{30};               // for a save to end in a process that fails
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
class ProgressTeller {
 public:
  ProgressTeller(trainer::AgentChannel* agent, int rank) : agent_(agent), rank_(rank) {}

  void figure(const std::string& name, double value) {
    if (agent_ && rank_ == 0) figures_.set(name, value);
  }
  void tell(std::int64_t step, std::int64_t total) {
    const auto now = steady_clock::now();
    if (!agent_ || step == 0 || (step != total && now - told_ < kProgressEvery)) return;
    told_ = now;
    channel::Progress message{.step = step, .steps_total = total};
    figures_.add_to(message);
    figures_.clear();
    agent_->send(message);
  }

 private:
  trainer::AgentChannel* agent_;
  int rank_;
  steady_clock::time_point told_;
  channel::NamedFigures figures_;
};

// Collective. For a run without trained state: ranks may have drawn different initial weights.
void take_weights_of_rank_0(trainer::TrainingState& state, const trainer::Peers& peers) {
  if (peers.world() == 1) return;
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> tensors;
  for (const auto* list : {&state.parameters, &state.buffers}) {
    for (const auto& entry : *list) tensors.push_back(entry.tensor.detach());
  }
  c10d::broadcast_coalesced(peers.group(), tensors, kBroadcastBytes);
}

// Collective. Verifies that all ranks loaded the same checkpoint, since nodes may have folders of their own.
void require_one_checkpoint(const trainer::TrainingState& state, const trainer::Peers& peers) {
  std::vector<at::Tensor> tensors;
  for (const trainer::StateTensor& one : trainer::state_map(state)) tensors.push_back(one.entry.tensor);
  const std::int64_t digest = trainer::state_digest(tensors).back();
  if (peers.smallest(digest) == peers.largest(digest)) return;
  throw UsageError("the ranks have read different checkpoints of step " + std::to_string(state.step) +
                   ": give all of them the same folder, or remove the wrong ones");
}

// Throws if the last save failed: the steps since the last checkpoint would be lost.
void require_saved(Checkpointing::Impl& saves) {
  try {
    saves.rethrow_finished();
  } catch (const std::system_error& error) {
    throw trainer::UnsavedError(std::string("the last checkpoint could not be saved: ") + error.what() +
                                ". Make room or mend the folder, then start again: it goes on from the newest one");
  }
}

}  // namespace

struct Job::Impl {
  std::string program;
  JobOptions options;
  trainer::JobPlace place{};
  c10::Device device = c10::kCPU;
  trainer::ProgramBuilds builds{};
  std::shared_future<trainer::StateDigest> own_program{};  // computed while the group starts

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
  impl_->device = trainer::choose_device(device_wanted(options.device), environment, trainer::Otherwise::kCpu);
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
    training.may_be_undone = place.groups_can_be_broken(device, /*live_nccl=*/false);
    if (training.may_be_undone) place.agent()->send(channel::Regroupable{});
    while (true) {
      try {
        const int code = train_in_group(state, saves, train);
        if (saves) saves->published = nullptr;  // the saves may outlive the job
        if (place.left_groups_behind()) trainer::leave_now(code);
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
    if (saves && order.rank != place.environment().rank) saves->give_up_claim();
    place.move_to(order);
  }
  place.form_group(device, options.timeout, /*live_nccl=*/false);
  agree(state, saves);
  const trainer::Peers& peers = place.peers();
  training.world = peers.world();
  if (auto* agent = place.agent()) {
    agent->send(channel::GroupFormed{.generation = place.generation(), .step = training.step});
  }
  place.status().reach(training.step, 0);
  place.status().enter(channel::Phase::kRunning);

  ProgressTeller progress(place.agent(), peers.rank());
  const bool writes = saves && peers.rank() == 0;
  Group::Impl inside{.place = place,
                     .training = training,
                     .device = device,
                     .finished =
                         [&](std::int64_t total) {
                           progress.tell(training.step, total);
                           if (writes) saves->save_if_due(training);
                         },
                     .figure = [&](const std::string& name, double value) { progress.figure(name, value); },
                     .reached = training.step};
  Group group(inside);
  train(group);
  if (saves) save_last(training, writes ? saves : nullptr);
  place.status().enter(channel::Phase::kDone);
  peers.meet();
  place.shut_down();
  return static_cast<int>(inside.stopped ? ExitCode::kPreempted : ExitCode::kDone);
}

// Collective. Agrees on one state: that of survivors, else a checkpoint's, else rank 0's.
void Job::Impl::agree(State& state, Checkpointing::Impl* saves) {
  trainer::TrainingState& training = state.impl().training;
  StateOrigin& origin = state.impl().origin;
  const trainer::Peers& peers = place.peers();
  if (place.recovery()) {
    const auto progress = builds.agree(own_program.get(), trainer::progress_of(training, origin), peers);
    const trainer::Sharing sharing = trainer::share_state(training, origin, peers, progress);
    if (origin == StateOrigin::kSurvivors) return trainer::compare_states(training, peers, sharing.holders);
  }
  const bool spoilt = origin == StateOrigin::kNothing;  // the state was received or changed only in part
  origin = StateOrigin::kUntouched;
  if (saves && saves->load(training)) origin = StateOrigin::kCheckpoint;
  trainer::share_state(training, origin, peers);
  if (trainer::is_whole(origin)) {
    require_one_checkpoint(training, peers);
    origin = StateOrigin::kCheckpoint;
  } else if (peers.largest(spoilt ? 1 : 0) > 0) {
    throw std::runtime_error("no rank holds the training state any more, and there is no checkpoint: all have to start again");
  } else {
    take_weights_of_rank_0(training, peers);
    origin = StateOrigin::kSeed;
  }
  peers.meet();
  if (saves && peers.rank() == 0) saves->set_bad_aside();
}

// Rank 0 saves. All ranks wait until the checkpoint is published. They exchange messages meanwhile, so a long save does not run
// into the timeout of an exchange.
void Job::Impl::save_last(const trainer::TrainingState& state, Checkpointing::Impl* saves) {
  const bool saves_now = saves && state.step != state.started_from;
  if (saves_now) {
    place.status().enter(channel::Phase::kSaving);
    saves->begin(state, /*in_background=*/false);
  }
  bool saved = !saves_now;
  do {
    if (!saved) {
      saves->task.wait_at_most(kBetweenExchanges);
      saved = !saves->task.busy();
      place.status().enter(channel::Phase::kSaving);  // shows the agent that this is not a hang
      if (saved) require_saved(*saves);
    }
  } while (place.peers().smallest(saved ? 1 : 0) == 0);
}

// Ends the process as ddptrain does: no destructor runs that could wait for a lost peer.
void Job::Impl::fail(const std::exception_ptr& error, const Checkpointing::Impl* saves) {
  const trainer::Failure failure = trainer::classify(error);
  std::fprintf(stderr, "%s: rank %d: %s\n", program.c_str(), place.environment().rank, failure.message.c_str());
  if (auto* agent = place.agent()) trainer::tell_failure(*agent, failure, place.status(), device.str());
  if (saves) saves->task.wait_at_most(kSettle);
  trainer::leave_now(failure.exit_code);
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
  impl_.place.peers().go_on();
  impl_.stopped = impl_.place.gate().may_start(finished) == trainer::StopGate::Verdict::kStop;
  impl_.asked_for_samples = trainer::StepPace::Clock::now();
  return !impl_.stopped;
}

void Group::seed_step(std::uint64_t seed) const {
  at::Generator generator = at::globalContext().defaultGenerator(impl_.device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(trainer::step_seed(seed, impl_.training.step, rank()));
}

void Group::figure(const std::string& name, double value) {
  impl_.figure(name, value);
}

void Group::sum(std::span<double> values) const {
  impl_.pace.waiting([&] { impl_.place.peers().sum(values); });
}

}  // namespace ddprun
