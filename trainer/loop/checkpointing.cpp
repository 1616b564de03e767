#include "trainer/loop/checkpointing.hpp"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

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
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/loop/interval.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::chrono::seconds kSettle{30};  // a disk that hangs must not keep a failed process alive
constexpr std::int64_t kCopiesKept = 2;      // nodes that are killed at the same time then share at least one step
constexpr double kSaidAgainBeyond = 1.25;    // an interval is reported again if it changed by this factor

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

[[noreturn]] void diverged_before_save(std::int64_t step) {
  throw DivergedError(
      "after step " + std::to_string(step) +
      " some weights are NaN or infinite; they are not saved. The newest checkpoint is from before that; a lower "
      "learning rate, warm-up or clip_grad_norm may help");
}

// If a data file is truncated, all ranks fail and each of them saves the same step. They do so one after the other, so that the
// disk needs room for one copy only. If a directory cannot be locked (NFS), no rank waits.
class TurnToSave {
 public:
  TurnToSave(const std::filesystem::path& folder, const std::function<void()>& wait)
      : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) wait();
  }
  ~TurnToSave() {
    if (fd_ >= 0) ::close(fd_);
  }
  TurnToSave(const TurnToSave&) = delete;
  TurnToSave& operator=(const TurnToSave&) = delete;

 private:
  int fd_;
};

// Checks only the manifest and the lengths of the files, since another rank has just written them.
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
  if (!setting_.local_copies.empty()) own_copy_.emplace(setting_.local_copies);
}

Checkpointing::~Checkpointing() = default;

void Checkpointing::begin() {
  try {
    if (own_copy_) own_copy_->take();
  } catch (const std::system_error& error) {
    log_.warn(channel::ErrorKind::kCheckpoint,
              std::string(error.what()) + "; this node keeps no copies of checkpoints until that is mended");
  }
  if (setting_.folder.empty()) return;
  try {
    const std::string note = claim_.take();
    if (!note.empty()) log_.warn(channel::ErrorKind::kCheckpoint, note);
  } catch (const std::system_error& error) {
    log_.warn(channel::ErrorKind::kCheckpoint, std::string(error.what()) + "; checkpoints can't be saved until that is mended");
  }
}

void Checkpointing::prepare(const CheckpointState& live) {
  if (setting_.config.background && setting_.source.on_device) host_copy_.prepare(HostCopy::bytes_for(live));
}

void Checkpointing::evaluated(std::int64_t step, const Evaluation& result) {
  evaluated_step_ = step;
  evaluation_.reset();
  for (const Figure& figure : result.figures) {  // a metric without samples in the test set is 0 / 0
    if (!std::isfinite(figure.value)) continue;
    if (!evaluation_) evaluation_.emplace();
    evaluation_->push_back(figure);
  }
}

bool Checkpointing::due(std::int64_t step) const {
  if (step == current_.step) return false;  // already saved; follow_step() asks again after a regroup
  const CheckpointConfig& config = setting_.config;
  if (config.every_steps > 0 && step % config.every_steps == 0) return true;
  if (config.keep_best > 0 && evaluated_step_ == step) return true;
  return own_copy_ ? ordered_ : due_by_time();
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

// The mean of the old and the new time follows a disk that becomes slower, and soon forgets a single slow save.
void Checkpointing::measure(double save_s) {
  save_s_ = save_s_ ? (*save_s_ + save_s) / 2 : save_s;
  if (setting_.config.every != CheckpointConfig::Every::kAuto) return;
  const double now = interval_s();
  if (said_interval_s_ && now < *said_interval_s_ * kSaidAgainBeyond && now > *said_interval_s_ / kSaidAgainBeyond) return;
  said_interval_s_ = now;
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
  log_.stood_still(Clock::now() - last_);
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

// From here to the task's end, `state` must not change unless a copy was made.
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
    } else if (!setting_.folder.empty()) {  // rank 0 reports it for all ranks
      diverged_before_save(saved.step);
    }
  });
}

// Call when the task has ended and training has waited for it.
void Checkpointing::end_awaited(Need need) {
  current_.pause_s = seconds(Clock::now() - last_);
  report(task_.take_finished().value(), need);
}

// Returns nullopt if there is no memory for the copy, with one warning. Training then waits for each save, as without
// `background`.
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
  log_.warn(channel::ErrorKind::kCheckpoint,
            "there is no memory for a copy of the training state (" + why + "); training waits while checkpoints are written");
  return std::nullopt;
}

// Runs on the task's thread or on the caller's. The node's copy is written first: the run directory may be on another machine,
// and become unreachable before it has the checkpoint.
void Checkpointing::write(const CheckpointState& state) {
  const auto begin = Clock::now();
  if (own_copy_) write_copy(state);
  if (setting_.folder.empty()) return;
  std::optional<TurnToSave> turn;
  if (required_) turn.emplace(setting_.folder, [&] { wait_for_turn(); });
  if (setting_.second_writer && is_published(setting_.folder, state)) return;
  write_once_there_is_room(state, begin);
  // The agent is informed immediately, even in the middle of a step, since it counts progress by this message.
  log_.tell_agent_of_checkpoint(state.step, current_.result.path.string(), current_.result.bytes, current_.pause_s,
                                current_.write_s);
}

// The kernel releases the other rank's lock when that process ends, so a held lock means a save in progress. flock() has no
// event to wait for, and a blocking call would keep this rank from reporting to the agent. So it checks ten times a second.
void Checkpointing::wait_for_turn() {
  constexpr std::chrono::milliseconds kBetweenLooks{100};
  status_.enter(channel::Phase::kSaving);  // so that the agent does not take the wait for a hang
  std::this_thread::sleep_for(std::min(kBetweenLooks, setting_.tell_every));
}

// The system does not notify of free disk space, so this function polls.
void Checkpointing::write_once_there_is_room(const CheckpointState& state, Clock::time_point begin) {
  const double most = required_ ? setting_.config.wait_for_room_s : 0;
  for (bool said = false;;) {
    try {
      return write_to_run_directory(state, begin);
    } catch (const std::system_error& error) {
      const bool full = error.code() == std::errc::no_space_on_device || error.code().value() == EDQUOT;
      if (!full || seconds(Clock::now() - begin) >= most) throw;
      if (!std::exchange(said, true)) {
        char time[32];
        std::snprintf(time, sizeof time, "%g", most);
        log_.warn(channel::ErrorKind::kCheckpoint,
                  "the checkpoint of step " + std::to_string(state.step) + ", the last of this run, waits up to " + time +
                      " s for room: " + error.what() + ". Make room, or end the job without it");
      }
    }
    status_.enter(channel::Phase::kSaving);  // so that the agent does not take the wait for a hang
    std::this_thread::sleep_for(setting_.tell_every);
  }
}

// A failed copy is only a warning: the checkpoint in the run directory is the one that counts.
void Checkpointing::write_copy(const CheckpointState& state) {
  try {
    const SaveResult result = save_checkpoint(own_copy_->take(), state, {.newest = kCopiesKept});
    current_.copy_trouble = result.note;
  } catch (const std::system_error& error) {
    current_.copy_trouble = "this node has no copy of the checkpoint of step " + std::to_string(state.step) + ": " +
                            error.what() + "; training goes on";
    current_.copy_error = error.code();
  }
}

// The measured time ends when the checkpoint is usable. Removing old checkpoints is not part of it.
void Checkpointing::write_to_run_directory(const CheckpointState& state, Clock::time_point begin) {
  auto told = begin;
  const auto at_stage = [&](const char* stage) {
    if (std::strcmp(stage, "writing") == 0) {
      // Entering the same phase again shows the agent that the save progresses. In the background, training itself shows
      // progress.
      if (awaited_ && Clock::now() - told >= setting_.tell_every) {
        told = Clock::now();
        status_.enter(channel::Phase::kSaving);
      }
      return;
    }
    if (std::strcmp(stage, "begun") != 0) faults_.at(FaultPhase::kSaving, state.step);
    if (std::strcmp(stage, "model-half") != 0) setting_.second_writer ? claim_.check_generation() : claim_.check();
    if (std::strcmp(stage, "begun") == 0 && setting_.keep_beside) setting_.keep_beside();
    if (std::strcmp(stage, "latest-moved") == 0) current_.write_s = seconds(Clock::now() - begin);
  };
  const auto save = [&] { return save_checkpoint(setting_.folder, state, retention_of(setting_.config), at_stage); };
  try {
    current_.result = save();
  } catch (const std::system_error& error) {
    const bool there = error.code() == std::errc::file_exists || error.code() == std::errc::directory_not_empty;
    if (!there) throw;
    current_.result = save();  // another rank has just published the same step: it is verified and kept
  }
}

void Checkpointing::report_finished() {
  if (const auto error = task_.take_finished()) report(*error, Need::kUseful);
}

void Checkpointing::wait_and_report() {
  task_.wait();
  report_finished();
}

void Checkpointing::settle() const {
  task_.wait_at_most(kSettle);
}

void Checkpointing::report(const std::exception_ptr& error, Need need) {
  if (!current_.copy_error) copy_trouble_.saved(current_.step);
  if (!current_.copy_trouble.empty() && (!current_.copy_error || copy_trouble_.failed(current_.step, current_.copy_error)))
    log_.warn(channel::ErrorKind::kCheckpoint, current_.copy_trouble);
  if (!error) {
    if (setting_.folder.empty()) return;
    if (const std::string said = trouble_.saved(current_.step); !said.empty()) log_.warn(channel::ErrorKind::kCheckpoint, said);
    log_.checkpoint(current_.step, current_.result.path.string(), current_.result.bytes, current_.pause_s, current_.write_s);
    if (!current_.result.note.empty()) log_.warn(channel::ErrorKind::kCheckpoint, current_.result.note);
    measure(current_.write_s);
    return;
  }
  const std::string text = "the checkpoint of step " + std::to_string(current_.step) + " could not be saved: ";
  const auto warn = [&](std::error_code cause, const std::string& why) {
    if (!trouble_.failed(current_.step, cause)) return;
    log_.warn(channel::ErrorKind::kCheckpoint, text + why + "; training goes on, older checkpoints are untouched");
  };
  // The memory for writing is host memory, so a smaller batch would not help. The error must not be reported as out of memory.
  if (const Failure failure = classify(error); failure.kind == channel::ErrorKind::kOutOfMemory) {
    if (need == Need::kRequired) throw InternalError(text + "no memory to write it (" + failure.message + ")");
    return warn(std::make_error_code(std::errc::not_enough_memory), "no memory to write it (" + failure.message + ")");
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error& failed) {
    if (need == Need::kRequired) {
      throw UnsavedError(
          text + failed.what() +
          ". It is the last of this run: make room or mend the folder, then start the run again; it goes on from "
          "the newest checkpoint");
    }
    warn(failed.code(), failed.what());
  }
}

}  // namespace ddprun::trainer
