// Decides when a checkpoint is due, and saves it. Rank 0 alone saves to the run directory; the others meet it again in the next
// all-reduce. If nodes keep copies on their own disks, one worker of each node writes the same checkpoint there. Training stops
// for a copy of the state to host memory. A thread writes that copy while training continues; there is one save at a time. A
// failed save is reported, and training continues with the older checkpoints, unless it is the last save of the run.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>

#include "common/config/train_config.hpp"
#include "trainer/checkpoint/background_task.hpp"
#include "trainer/checkpoint/host_copy.hpp"
#include "trainer/checkpoint/local_copies.hpp"
#include "trainer/checkpoint/writer_claim.hpp"
#include "trainer/failure/failure_history.hpp"
#include "trainer/loop/evaluate.hpp"
#include "trainer/loop/run_log.hpp"
#include "trainer/loop/save_trouble.hpp"
#include "trainer/state/training_state.hpp"
#include "trainer/surroundings/fault_injection.hpp"
#include "trainer/surroundings/status.hpp"

namespace ddprun::trainer {

class Checkpointing {
 public:
  struct Setting {
    std::filesystem::path folder;  // checkpoints of the run directory; empty for a rank that only writes a copy
    CheckpointConfig config;
    std::filesystem::path local_copies{};  // trainer/checkpoint/local_copies.hpp; empty: not configured
    WriterClaim::Generation generation{};
    HostCopy::Source source{};  // location of the training state
    FailureHistory history{};   // failures of the run so far; only for "every": "auto"
    // Called before each save to `folder`. Writes the other files that the next start needs, in case the run directory was
    // removed meanwhile. May throw std::system_error, which ends the save.
    std::function<void()> keep_beside{};
    std::chrono::milliseconds tell_every{1000};  // time between progress reports to the agent while training waits for a save
    // For a rank that writes to `folder` in addition to rank 0, which keeps its claim. A step that is already published is not
    // saved again.
    bool second_writer = false;
  };
  Checkpointing(Setting setting, const Faults& faults, RunLog& log, Status& status);
  ~Checkpointing();  // waits for a save in progress; its result is not reported
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  // Claims the folder for this process and removes leftovers of earlier writers. Throws SupersededError if a later writer has
  // claimed it. A disk error is a warning; each save tries again.
  void begin();

  // With a GPU: allocates the memory for copies of states of this size while training continues.
  void prepare(const CheckpointState& live);

  // The test set was evaluated after this step. A checkpoint of the same step includes the result.
  void evaluated(std::int64_t step, const Evaluation& result);

  // Whether a save is due after `step` steps. Times count from the last save or the start, and a save by time waits until the
  // one in progress ends. A save by steps does not, so that the same steps are saved on a slow disk too. If nodes write copies,
  // rank 0 alone decides by time (asks()). All writers receive its decision in the same step (order()).
  bool due(std::int64_t step) const;
  bool asks() const { return !setting_.local_copies.empty() && !setting_.folder.empty() && due_by_time(); }
  void order() { ordered_ = true; }

  enum class Need {
    kUseful,  // in the background unless the config excludes it; a failure is a warning
    // Published when the call returns, written by the same thread. A failure throws UnsavedError, or InternalError if memory is
    // lacking: the run would lose all steps since the last checkpoint. For a full disk the save first waits as long as the
    // config allows.
    kRequired,
  };
  // Waits for a save in progress, then saves. Throws DivergedError instead of publishing NaN or infinite weights. For a save in
  // the background the next call of report_finished() throws it.
  void save(const TrainingState& state, const TrainConfig& config, const RunLength& length, const BucketOrder& bucket_order,
            int world, Need need);

  // The same for the last save of a run, while other ranks wait for it. begin_last() begins it. last_is_saved() returns true
  // once it has ended, and false after `at_most`. `state` must not change meanwhile. Both throw as save() does.
  void begin_last(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                  const BucketOrder& bucket_order, int world);
  bool last_is_saved(std::chrono::milliseconds at_most);

  // Reports the result of a save in the background if one has ended since. Called after each step; its cost is one lock.
  void report_finished();

  // Waits at most 30 s for a save in progress and does not report it. For a process that ends because of another error.
  void settle() const;

 private:
  using Clock = std::chrono::steady_clock;

  // One save, from its start to its report. The thread writes it while the task runs; the caller reads it afterwards.
  struct Save {
    std::int64_t step = 0;
    double pause_s = 0;
    double write_s = 0;
    SaveResult result{};
    std::string copy_trouble{};    // why this node has no copy of it; empty if it has one or needs none
    std::error_code copy_error{};  // the error code of that; empty if the copy exists and only a note is to be reported
  };

  bool due_by_time() const;
  void begin_save(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                  const BucketOrder& bucket_order, int world, Need need);
  void end_awaited(Need need);
  void write(const CheckpointState& state);
  void write_copy(const CheckpointState& state);
  void wait_for_turn();
  void write_once_there_is_room(const CheckpointState& state, Clock::time_point begin);
  void write_to_run_directory(const CheckpointState& state, Clock::time_point begin);
  void report(const std::exception_ptr& error, Need need);
  void wait_and_report();
  std::optional<CheckpointState> host_copy_of(const CheckpointState& live);
  void measure(double save_s);
  double interval_s() const;

  Setting setting_;
  const Faults& faults_;
  RunLog& log_;
  Status& status_;
  WriterClaim claim_;
  std::optional<OwnCopy> own_copy_;
  bool ordered_ = false;  // rank 0 has ordered a save that has not begun
  HostCopy host_copy_;
  bool copy_refused_ = false;  // there was no memory for a copy
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_ = Clock::now();
  std::optional<double> save_s_;           // duration of a typical save, the input of "auto"
  std::optional<double> said_interval_s_;  // the last interval that was reported
  std::int64_t evaluated_step_ = -1;
  std::optional<FigureList> evaluation_;
  Save current_;
  bool awaited_ = false;      // training waits for the current save
  bool required_ = false;     // the current save is the last of the run
  SaveTrouble trouble_;       // failures in the run directory
  SaveTrouble copy_trouble_;  // failures of this node's copies
  BackgroundTask task_;       // last: its destructor waits for work that uses the other members
};

}  // namespace ddprun::trainer
