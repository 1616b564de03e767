#include "trainer/life/state_source.hpp"

#include <cstdio>
#include <string>
#include <system_error>

#include "common/base/error.hpp"
#include "trainer/data/fingerprint.hpp"
#include "trainer/resume/kept_history.hpp"
#include "trainer/resume/resume.hpp"
#include "trainer/resume/resumed_state.hpp"
#include "trainer/state/initial_weights.hpp"
#include "trainer/state/length_notes.hpp"
#include "trainer/state/state_comparison.hpp"
#include "trainer/state/state_sharing.hpp"

namespace ddprun::trainer {
namespace {

// Number of the first round (start of all workers) in a multi-node job. On one node, the first generation is 0.
constexpr int kFirstRound = 1;

// Stores the run's identity on a node that has joined a running job. When a run starts or resumes, trainer/resume/resume.cpp
// stores it.
void keep_identity(const RunLayout& layout, const RunIdentity& run, const Warn& warn) {
  try {
    write_run_identity(layout.run(), run);
  } catch (const std::system_error& error) {
    warn(std::string(error.what()) + "; training continues");
  }
}

// Returns the fingerprint of the data. If the model comes from files, the text also contains the fingerprint of the model.
std::string fingerprint_of_run(const Process& process) {
  const std::string model = process.task().fingerprint();
  return fingerprint_of(process.data()) + (model.empty() ? "" : ", model " + model);
}

// Archives the metrics of an earlier training run whose checkpoints were removed, since the user may still need these metrics.
void keep_history(const RunLayout& layout, const Warn& warn) {
  try {
    std::string names;
    for (const auto& path : archive_orphaned_history(layout)) names += (names.empty() ? "" : ", ") + path.filename().string();
    if (names.empty()) return;
    warn("this run had checkpoints, but " + layout.checkpoints().string() +
         " has no checkpoint to resume from: training starts at step 0, and the records of the earlier training are kept as " +
         names);
  } catch (const std::system_error& error) {
    throw UsageError(
        "this run had checkpoints, but none to resume from. Training would start at step 0, but the records of the earlier "
        "training cannot be renamed: " +
        std::string(error.what()) + ". Fix this error, or use --fresh or another --run-dir");
  }
}

}  // namespace

void StateSource::prepare() {
  if (process_.recovery() && !own_program_.valid()) {
    own_program_ = std::async(std::launch::async, digest_of_own_program).share();
  }
  if (origin_ != StateOrigin::kNothing) return;
  const Description samples = process_.subject().describe(process_.config());
  if (!process_.subject().built_in && !made_before_) {
    require_same_module(process_.task(), samples, process_.config().seed, process_.device());
    made_before_ = true;
  }
  make_state(samples);
  state_.can_undo = process_.groups_can_be_broken();
  // The backward pass computes the gradient of the first layer last. After that, this rank only waits for the gradients of the
  // other ranks. So a hook on this gradient sets the stage at the end of a backward pass.
  if (const std::vector<NamedTensor> trained = trained_parameters(state_); !trained.empty()) {
    trained.front().tensor.register_hook(
        [&status = process_.status()](const at::Tensor&) { status.at(channel::Stage::kBackward); });
  }
  origin_ = StateOrigin::kUndecided;
}

// Earlier versions did not compare the model in model.init with a config.json. If a run was started by such a version, its
// config and checkpoints define its model. The run resumes with that model if the user accepts it with --data-changed.
void StateSource::make_state(const Description& samples) {
  const TrainConfig& config = process_.config();
  try {
    state_ = new_training_state(process_.task(), samples, config, process_.device());
  } catch (const OtherModelError& other) {
    other_model_ = other.what();
    if (!process_.options().data_changed) {
      throw UsageError(other_model_ +
                       ". If an older version of ddprun without this check started the run, add --data-changed to resume it "
                       "with the model of its config");
    }
    TrainConfig without_init = config;
    without_init.model.init.clear();
    state_ = new_training_state(process_.task(), samples, without_init, process_.device());
  }
}

std::optional<std::int64_t> StateSource::held() const {
  return is_whole(origin_) ? std::optional(state_.step) : std::nullopt;
}

// Undoes the interrupted step. Drops the state if that fails. Also drops it if the lost group was still exchanging the state,
// because the state is then incomplete.
void StateSource::leave() {
  const bool undone = undo_step(state_);
  if (!undone || !is_whole(origin_)) origin_ = StateOrigin::kNothing;
}

// Without an agent there is only one group, so there are no ranks that survived an earlier group.
void StateSource::agree(const Run& run) {
  Sharing sharing;
  if (process_.recovery()) {
    const auto progress = builds_.agree(own_program_.get(), progress_of(state_, origin_), process_.peers());
    sharing = share_state(state_, origin_, process_.peers(), progress);
  }
  if (origin_ == StateOrigin::kSurvivors) {
    take_from_survivors(run, sharing.holders, sharing.without);
  } else {
    begin_or_resume(run);
  }
}

void StateSource::take_from_survivors(const Run& run, const std::vector<int>& holders, const std::vector<int>& without) {
  const Peers& peers = process_.peers();
  RankRecords& records = process_.records();
  compare_states(state_, peers, holders);
  if (process_.environment().local_rank == 0) {
    keep_identity(run.layout, state_.run, records.warn(channel::ErrorKind::kCheckpoint));
  }
  if (!records.log->is_open()) records.log->open(run.layout, process_.config(), run.length, state_.step);
  records.log->regrouped(state_.step, peers.world(), without);
}

void StateSource::begin_or_resume(const Run& run) {
  const TrainConfig& config = process_.config();
  const Peers& peers = process_.peers();
  RunLog& log = *process_.records().log;
  const Warn warn = process_.records().warn(channel::ErrorKind::kCheckpoint);
  const CheckpointPlaces places = checkpoint_places(run.layout, config, process_.environment().local_rank == 0);

  const bool job_begins = process_.environment().restart_count == 0 && process_.generation() <= kFirstRound;
  const ResumeChoice choice = choose_resume(process_.options(), process_.generation(), places,
                                            job_begins ? fingerprint_of_run(process_) : "", peers, warn, saved_tensors(state_));
  if (!choice.from && !other_model_.empty()) {
    throw UsageError(other_model_ + ". --data-changed applies only to a run with checkpoints, and this run has none");
  }
  state_.run = choice.run;
  Resumed resumed;
  if (choice.from) {
    resumed = resume_state(state_, origin_, *choice.from, config, run.length, peers);
  } else if (peers.rank() == 0) {
    keep_history(run.layout, warn);
  }
  log.open(run.layout, config, run.length, state_.step);
  if (choice.from) {
    const auto again = process_.generation() > 0 ? RunLog::ResumeKind::kRestart : RunLog::ResumeKind::kResume;
    log.resumed(again, state_.step, peers.world(), resumed.path);
  }
  if (!resumed.differences.empty() && peers.rank() == 0) {
    std::fprintf(stderr, "ddptrain: the results match those of an uninterrupted run only up to rounding, not bit for bit: %s\n",
                 resumed.differences.c_str());
  }
  if (process_.generation() == 0 && peers.rank() == 0) {
    for (const std::string& note : length_notes(config, run.length, state_.step, resumed.planned)) {
      std::fprintf(stderr, "ddptrain: %s\n", note.c_str());
    }
  }
  if (choice.from) return;
  if (!state_.taken.empty() && peers.rank() == 0) std::fprintf(stderr, "ddptrain: %s\n", state_.taken.c_str());
  origin_ = StateOrigin::kSeed;
}

}  // namespace ddprun::trainer
