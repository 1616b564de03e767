// Implementation of state_source.hpp.
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

constexpr int kFirstRound = 1;  // in a multi-node job; 0 on one node

// For a node that joined after the run began. The node that begins a run writes its identity elsewhere
// (trainer/resume/resume.cpp).
void keep_identity(const RunLayout& layout, const RunIdentity& run, const Warn& warn) {
  try {
    keep_run_identity(layout.run(), run);
  } catch (const std::system_error& error) {
    warn(std::string(error.what()) + "; training goes on");
  }
}

// Fingerprint of the data, and of the model if that comes from files.
std::string fingerprint_of_run(const Process& process) {
  const std::string model = process.task().fingerprint();
  return fingerprint_of(process.data()) + (model.empty() ? "" : ", model " + model);
}

// A user who removed the checkpoints of a run may still want its metrics, so they are kept.
void keep_history(const RunLayout& layout, const Warn& warn) {
  try {
    std::string names;
    for (const auto& path : keep_history_without_checkpoints(layout)) {
      names += (names.empty() ? "" : ", ") + path.filename().string();
    }
    if (names.empty()) return;
    warn("this run had checkpoints, but " + layout.checkpoints().string() +
         " has none that it goes on from: training begins at step 0, and what is recorded of the earlier training is kept as " +
         names);
  } catch (const std::system_error& error) {
    throw UsageError(
        "this run had checkpoints and begins at step 0 without them, but what is recorded of it can't be renamed: " +
        std::string(error.what()) + "; mend that, or use --fresh or another --run-dir");
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
  state_.may_be_undone = process_.groups_can_be_broken();
  // Backward computes the first layer's gradient last. After that this rank only waits for the others' gradients.
  if (const std::vector<NamedTensor> trained = trained_parameters(state_); !trained.empty()) {
    trained.front().tensor.register_hook(
        [&status = process_.status()](const at::Tensor&) { status.at(channel::Stage::kBackward); });
  }
  origin_ = StateOrigin::kUntouched;
}

// Earlier versions did not compare model.init with a config.json. The model of such a run is that of its own config and
// checkpoints. The run resumes with that model if the user accepts it.
void StateSource::make_state(const Description& samples) {
  const TrainConfig& config = process_.config();
  try {
    state_ = new_training_state(process_.task(), samples, config, process_.device());
  } catch (const OtherModelError& other) {
    other_model_ = other.what();
    if (!process_.options().data_changed) {
      throw UsageError(other_model_ + ". A run that began before ddprun compared them resumes with its own keys: add " +
                       "--data-changed");
    }
    TrainConfig without_init = config;
    without_init.model.init.clear();
    state_ = new_training_state(process_.task(), samples, without_init, process_.device());
  }
}

std::optional<std::int64_t> StateSource::held() const {
  return is_whole(origin_) ? std::optional(state_.step) : std::nullopt;
}

// A state that is incomplete may have been changed in the group, so it is dropped.
void StateSource::leave() {
  const bool undone = undo_step(state_);
  if (!undone || !is_whole(origin_)) origin_ = StateOrigin::kNothing;
}

// Without an agent there is only one group, so there are no survivors.
void StateSource::agree(Membership& membership, const Run& run) {
  Sharing sharing;
  if (process_.recovery()) {
    const auto progress = builds_.agree(own_program_.get(), progress_of(state_, origin_), membership.peers());
    sharing = share_state(state_, origin_, membership.peers(), progress);
  }
  if (origin_ == StateOrigin::kSurvivors) {
    take_from_survivors(membership, run, sharing.holders, sharing.without);
  } else {
    begin_or_resume(membership, run);
  }
}

void StateSource::take_from_survivors(Membership& membership, const Run& run, const std::vector<int>& holders,
                                      const std::vector<int>& without) {
  const Peers& peers = membership.peers();
  RankRecords& records = membership.records();
  compare_states(state_, peers, holders);
  if (process_.environment().local_rank == 0) {
    keep_identity(run.layout, state_.run, records.warn(channel::ErrorKind::kCheckpoint));
  }
  if (!records.log->is_open()) records.log->open(run.layout, process_.config(), run.length, state_.step);
  records.log->regrouped(state_.step, peers.world(), without);
}

void StateSource::begin_or_resume(Membership& membership, const Run& run) {
  const TrainConfig& config = process_.config();
  const Peers& peers = membership.peers();
  RunLog& log = *membership.records().log;
  const Warn warn = membership.records().warn(channel::ErrorKind::kCheckpoint);
  const CheckpointPlaces places = checkpoint_places(run.layout, config, process_.environment().local_rank == 0);

  const bool job_begins = process_.environment().restart_count == 0 && membership.generation() <= kFirstRound;
  const Beginning beginning = choose_resume(process_.options(), membership.generation(), places,
                                            job_begins ? fingerprint_of_run(process_) : "", peers, warn);
  if (!beginning.from && !other_model_.empty()) {
    throw UsageError(other_model_ + ". --data-changed helps a run with checkpoints only, and this one has none");
  }
  state_.run = beginning.run;
  Resumed resumed;
  if (beginning.from) {
    resumed = resume_state(state_, origin_, *beginning.from, config, run.length, peers);
  } else if (peers.rank() == 0) {
    keep_history(run.layout, warn);
  }
  log.open(run.layout, config, run.length, state_.step);
  if (beginning.from) {
    const auto again = membership.generation() > 0 ? RunLog::Again::kRestart : RunLog::Again::kResume;
    log.resumed(again, state_.step, peers.world(), resumed.path);
  }
  if (!resumed.differences.empty() && peers.rank() == 0) {
    std::fprintf(stderr, "ddptrain: the numbers agree with those of the run so far to rounding, not to the bit: %s\n",
                 resumed.differences.c_str());
  }
  if (membership.generation() == 0 && peers.rank() == 0) {
    for (const std::string& note : length_notes(config, run.length, state_.step, resumed.planned)) {
      std::fprintf(stderr, "ddptrain: %s\n", note.c_str());
    }
  }
  if (beginning.from) return;
  if (!state_.taken.empty() && peers.rank() == 0) std::fprintf(stderr, "ddptrain: %s\n", state_.taken.c_str());
  origin_ = StateOrigin::kSeed;
}

}  // namespace ddprun::trainer
