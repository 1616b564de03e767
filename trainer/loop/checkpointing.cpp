#include "trainer/loop/checkpointing.hpp"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "common/base/error.hpp"
#include "common/system/descriptor.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/loop/interval.hpp"

namespace ddprun::trainer {
namespace {

// Limits the wait, so that a failed process exits even if a disk hangs.
constexpr std::chrono::seconds kMaxWaitForSave{30};
// There are two copies: if all nodes are killed during a save, every node still has the previous checkpoint.
constexpr std::int64_t kCopiesKept = 2;
// The checkpoint interval is reported again if it has changed by this factor.
constexpr double kReportFactor = 1.25;

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

[[noreturn]] void diverged_before_save(std::int64_t step) {
  throw DivergedError("some weights are NaN or infinite after step " + std::to_string(step) +
                      ", so they are not saved; the newest checkpoint is from an earlier step. Try a lower optimizer.lr, a "
                      "larger schedule.warmup_steps, or clip_grad_norm");
}

// Returns a lock on the checkpoint folder. If a data file is truncated, all ranks fail, and each of them saves the same step.
// The lock makes them save one after another, so the disk needs space for only one unfinished checkpoint at a time. If the
// folder cannot be locked (NFS), the ranks save at the same time.
Descriptor lock_for_save(const std::filesystem::path& folder, const std::function<void()>& wait) {
  Descriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (lock.get() >= 0 && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) wait();
  return lock;
}

// Returns true if another rank has already published a valid checkpoint of this step of this run. It checks the manifest and
// the lengths of the files. It does not check their contents, since the files have just been written.
bool is_published(const std::filesystem::path& folder, const CheckpointState& state) {
  for (Candidate& candidate : list_checkpoints(folder)) {
    if (candidate.step != state.step) continue;
    judge_checkpoint(candidate);
    return candidate.problem.empty() && candidate.run == state.run;
  }
  return false;
}

}  // namespace

Checkpointing::Checkpointing(Setting setting, const Faults& faults, RunLog& log, Status& status)
    : setting_(std::move(setting)),
      faults_(faults),
      log_(log),
      status_(status),
      claim_(setting_.folder, setting_.generation),
      host_copy_(setting_.source) {
  if (!setting_.local_copies.empty()) local_copy_.emplace(setting_.local_copies);
}

Checkpointing::~Checkpointing() = default;

void Checkpointing::begin() {
  try {
    if (local_copy_) local_copy_->take();
  } catch (const std::system_error& error) {
    log_.warn(channel::ErrorKind::kCheckpoint,
              std::string(error.what()) + "; this node saves no copies of checkpoints until this is fixed");
  }
  if (setting_.folder.empty()) return;
  try {
    const std::string note = claim_.take();
    if (!note.empty()) log_.warn(channel::ErrorKind::kCheckpoint, note);
  } catch (const std::system_error& error) {
    log_.warn(channel::ErrorKind::kCheckpoint, std::string(error.what()) + "; checkpoints cannot be saved until this is fixed");
  }
}

void Checkpointing::prepare(const CheckpointState& live) {
  if (setting_.config.background && setting_.source.on_device) host_copy_.prepare(HostCopy::bytes_for(live));
}

void Checkpointing::evaluated(std::int64_t step, const Evaluation& result) {
  evaluated_step_ = step;
  evaluation_.reset();
  // A metric that has no samples in the test set is NaN, and NaN is not saved.
  for (const Metric& figure : result.figures) {
    if (!std::isfinite(figure.value)) continue;
    if (!evaluation_) evaluation_.emplace();
    evaluation_->push_back(figure);
  }
}

bool Checkpointing::due(std::int64_t step) const {
  // After a regroup, follow_step() runs a second time for the same step, which may already be saved.
  if (step == current_.step) return false;
  const CheckpointConfig& config = setting_.config;
  if (config.every_steps > 0 && step % config.every_steps == 0) return true;
  if (config.keep_best > 0 && evaluated_step_ == step) return true;
  return local_copy_ ? ordered_ : due_by_time();
}

bool Checkpointing::due_by_time() const {
  const CheckpointConfig& config = setting_.config;
  const bool by_time = config.every_seconds > 0 || config.every == CheckpointConfig::Every::kAuto;
  if (!by_time || seconds(Clock::now() - last_) < interval_s()) return false;
  return !task_.busy();
}

double Checkpointing::interval_s() const {
  if (setting_.config.every == CheckpointConfig::Every::kGiven) return setting_.config.every_seconds;
  if (!save_s_) return kFirstIntervalSeconds;
  const double observed = setting_.history.seconds + seconds(Clock::now() - started_);
  return checkpoint_interval_s(*save_s_, mean_seconds_between_failures(observed, setting_.history.failures));
}

// Updates the average duration of a save: the mean of the previous average and the new duration. So the average adapts quickly
// if the disk becomes slower, and a single slow save has little effect after a few more saves.
void Checkpointing::measure(double save_s) {
  save_s_ = save_s_ ? (*save_s_ + save_s) / 2 : save_s;
  if (setting_.config.every != CheckpointConfig::Every::kAuto) return;
  const double now = interval_s();
  if (reported_interval_s_ && now < *reported_interval_s_ * kReportFactor && now > *reported_interval_s_ / kReportFactor)
    return;
  reported_interval_s_ = now;
  const double observed = setting_.history.seconds + seconds(Clock::now() - started_);
  log_.checkpoint_interval(current_.step, now, *save_s_, mean_seconds_between_failures(observed, setting_.history.failures),
                           setting_.history.failures);
}

void Checkpointing::save(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                         const BucketOrder& bucket_order, int world, Need need) {
  const channel::Phase before = status_.phase();
  begin_save(state, config, length, bucket_order, world, need);
  if (awaited_) {
    task_.wait();
    end_awaited(need);
  }
  log_.exclude_pause(Clock::now() - last_);
  status_.enter(before);
}

void Checkpointing::begin_last(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                               const BucketOrder& bucket_order, int world) {
  begin_save(state, config, length, bucket_order, world, Need::kRequired);
}

bool Checkpointing::last_is_saved(std::chrono::milliseconds at_most) {
  task_.wait_at_most(at_most);
  if (task_.busy()) return false;
  if (std::exchange(awaited_, false)) end_awaited(Need::kRequired);
  return true;
}

// Starts a save in the background. If there is no copy of the state, sets `awaited_`. In that case `state` must not change
// until the task has ended.
void Checkpointing::begin_save(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                               const BucketOrder& bucket_order, int world, Need need) {
  const auto begin = Clock::now();
  status_.enter(channel::Phase::kSaving);
  wait_and_report();
  last_ = begin;
  ordered_ = false;
  current_ = {.step = state.step};
  CheckpointState live = checkpoint_of(state, config, length, bucket_order, world);
  if (evaluated_step_ == state.step) live.evaluation = evaluation_;

  required_ = need == Need::kRequired;
  std::optional<CheckpointState> copy;
  if (setting_.config.background) copy = host_copy_of(live);
  awaited_ = required_ || !copy;
  const bool known_finite = !copy;
  if (known_finite && !all_finite(state)) diverged_before_save(state.step);
  current_.pause_s = seconds(Clock::now() - begin);
  task_.start([this, known_finite, saved = copy ? std::move(*copy) : std::move(live)] {
    if (known_finite || all_finite(saved)) {
      write(saved);
    } else if (!setting_.folder.empty()) {
      // The weights are the same on all ranks. Only rank 0 has a folder, so only rank 0 reports the error.
      diverged_before_save(saved.step);
    }
  });
}

// Reports the result of a save for which training has waited. Call this when the task has ended.
void Checkpointing::end_awaited(Need need) {
  current_.pause_s = seconds(Clock::now() - last_);
  report(task_.take_finished().value(), need);
}

// Copies the state to host memory. If there is not enough memory, returns nullopt and logs one warning. Training then waits for
// each save, as if `background` were not set.
std::optional<CheckpointState> Checkpointing::host_copy_of(const CheckpointState& live) {
  if (copy_refused_) return std::nullopt;
  std::string why;
  try {
    return host_copy_.take(live);
  } catch (const std::bad_alloc& refused) {
    why = refused.what();
  } catch (const c10::Error& refused) {
    why = refused.what_without_backtrace();
  }
  copy_refused_ = true;
  log_.warn(channel::ErrorKind::kCheckpoint, "not enough host memory for a copy of the training state (" + why +
                                                 "): training now waits while a checkpoint is written");
  return std::nullopt;
}

// Writes the checkpoint, in the background thread. It writes the node's copy first. If the run directory is on another machine
// that becomes unreachable, the node then still has its copy.
void Checkpointing::write(const CheckpointState& state) {
  const auto begin = Clock::now();
  if (local_copy_) write_copy(state);
  if (setting_.folder.empty()) return;
  Descriptor save_lock;
  if (required_) save_lock = lock_for_save(setting_.folder, [&] { wait_for_save_lock(); });
  if (setting_.second_writer && is_published(setting_.folder, state)) return;
  write_when_space_is_free(state, begin);
  // The agent is informed immediately, even in the middle of a step. A published checkpoint counts as progress of the job.
  log_.report_checkpoint_to_agent(state.step, current_.result.path.string(), current_.result.bytes, current_.pause_s,
                                  current_.write_s);
}

// Waits a short time before the next attempt to lock the folder. The kernel releases a lock when its process ends, so a locked
// folder means that another rank is saving. A blocking flock() would prevent this rank from reporting to the agent, and flock()
// has no event to wait for. So the rank tries to lock ten times a second.
void Checkpointing::wait_for_save_lock() {
  constexpr std::chrono::milliseconds kPollInterval{100};
  status_.enter(channel::Phase::kSaving);  // reports progress, so that the agent does not assume a hang
  std::this_thread::sleep_for(std::min(kPollInterval, setting_.report_interval));
}

// Writes the checkpoint. If this is the last save and the disk is full, retries until the configured time has passed. It must
// poll, since the system sends no event when disk space becomes free.
void Checkpointing::write_when_space_is_free(const CheckpointState& state, Clock::time_point begin) {
  const double limit = required_ ? setting_.config.wait_for_room_s : 0;
  for (bool reported = false;;) {
    try {
      return write_to_run_directory(state, begin);
    } catch (const std::system_error& error) {
      const bool full = error.code() == std::errc::no_space_on_device || error.code().value() == EDQUOT;
      if (!full || seconds(Clock::now() - begin) >= limit) throw;
      if (!std::exchange(reported, true)) {
        char time[32];
        std::snprintf(time, sizeof time, "%g", limit);
        log_.warn(channel::ErrorKind::kCheckpoint, "the final checkpoint (step " + std::to_string(state.step) +
                                                       ") cannot be written: " + error.what() + ". The job retries for up to " +
                                                       time + " s: free disk space, or stop the job without this checkpoint");
      }
    }
    status_.enter(channel::Phase::kSaving);  // reports progress, so that the agent does not assume a hang
    std::this_thread::sleep_for(setting_.report_interval);
  }
}

// Writes the node's copy. An error causes only a warning, since only the checkpoint in the run directory must exist.
void Checkpointing::write_copy(const CheckpointState& state) {
  try {
    const SaveResult result = save_checkpoint(local_copy_->take(), state, {.newest = kCopiesKept});
    current_.copy_problem = result.note;
  } catch (const std::system_error& error) {
    current_.copy_problem = "the copy of the checkpoint of step " + std::to_string(state.step) +
                            " could not be saved on this node: " + error.what() + "; training continues";
    current_.copy_error = error.code();
  }
}

// Writes the checkpoint to the run directory. The measured time ends as soon as the checkpoint can be loaded, before old
// checkpoints are removed.
void Checkpointing::write_to_run_directory(const CheckpointState& state, Clock::time_point begin) {
  auto last_report = begin;
  const auto at_stage = [&](const char* stage) {
    if (std::strcmp(stage, "writing") == 0) {
      // Entering the same phase again reports to the agent that the save makes progress. A save in the background needs no such
      // report, since the training steps report progress.
      if (awaited_ && Clock::now() - last_report >= setting_.report_interval) {
        last_report = Clock::now();
        status_.enter(channel::Phase::kSaving);
      }
      return;
    }
    if (std::strcmp(stage, "begun") != 0) faults_.at(FaultPhase::kSaving, state.step);
    if (std::strcmp(stage, "model-half") != 0) setting_.second_writer ? claim_.check_generation() : claim_.check();
    if (std::strcmp(stage, "begun") == 0 && setting_.save_run_files) setting_.save_run_files();
    if (std::strcmp(stage, "latest-moved") == 0) current_.write_s = seconds(Clock::now() - begin);
  };
  const auto save = [&] { return save_checkpoint(setting_.folder, state, retention_of(setting_.config), at_stage); };
  try {
    current_.result = save();
  } catch (const std::system_error& error) {
    const bool there = error.code() == std::errc::file_exists || error.code() == std::errc::directory_not_empty;
    if (!there) throw;
    // Another rank has published the same step in the meantime. This call verifies that checkpoint and does not replace it.
    current_.result = save();
  }
}

void Checkpointing::report_finished() {
  if (const auto error = task_.take_finished()) report(*error, Need::kUseful);
}

void Checkpointing::wait_and_report() {
  task_.wait();
  report_finished();
}

void Checkpointing::wait_for_save() const {
  task_.wait_at_most(kMaxWaitForSave);
}

void Checkpointing::report(const std::exception_ptr& error, Need need) {
  if (!current_.copy_error) copy_failures_.saved(current_.step);
  if (!current_.copy_problem.empty() && (!current_.copy_error || copy_failures_.failed(current_.step, current_.copy_error)))
    log_.warn(channel::ErrorKind::kCheckpoint, current_.copy_problem);
  if (!error) {
    if (setting_.folder.empty()) return;
    if (const std::string reported = save_failures_.saved(current_.step); !reported.empty())
      log_.warn(channel::ErrorKind::kCheckpoint, reported);
    log_.checkpoint(current_.step, current_.result.path.string(), current_.result.bytes, current_.pause_s, current_.write_s);
    if (!current_.result.note.empty()) log_.warn(channel::ErrorKind::kCheckpoint, current_.result.note);
    measure(current_.write_s);
    return;
  }
  const std::string text = "the checkpoint of step " + std::to_string(current_.step) + " could not be saved: ";
  const auto warn = [&](std::error_code cause, const std::string& why) {
    if (!save_failures_.failed(current_.step, cause)) return;
    log_.warn(channel::ErrorKind::kCheckpoint, text + why + "; training continues, and older checkpoints are kept");
  };
  // Writing needs only host memory, so a smaller batch would not help. With the error "out of memory", the restarted job would
  // use a smaller batch, so this error is reported differently.
  if (const Failure failure = classify(error); failure.kind == channel::ErrorKind::kOutOfMemory) {
    if (need == Need::kRequired) throw InternalError(text + "not enough memory to write it (" + failure.message + ")");
    return warn(std::make_error_code(std::errc::not_enough_memory), "not enough memory to write it (" + failure.message + ")");
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error& failed) {
    if (need == Need::kRequired) {
      throw UnsavedError(
          text + failed.what() +
          ". It is the final checkpoint of this run. Free disk space or fix the folder, then start the job again: "
          "it resumes from the newest checkpoint");
    }
    warn(failed.code(), failed.what());
  }
}

}  // namespace ddprun::trainer
