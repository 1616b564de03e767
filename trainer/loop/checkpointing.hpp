// Decides when a checkpoint is due, and saves it. Only rank 0 saves to the run directory. The other ranks do not take part, and
// wait for rank 0 in the next all-reduce. If the config requests copies on the nodes' disks, one worker of each node writes the
// same checkpoint to its disk.
//
// The problem. Writing a large state can take minutes, during which the GPUs would be idle. But training changes the state, so
// it must not continue while the state itself is written.
//
// The idea. Training stops only while the state is copied to host memory. A thread then writes this copy while training
// continues. A new save waits until the previous one has ended. If there is no memory for the copy, training waits for each
// save. A failed save is reported, and training continues with the older checkpoints. Only the last save of the run must
// succeed, since the steps after the previous checkpoint would be lost.
//
// The cost is host memory for one copy of the state, and the pause for the copy.
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
#include "trainer/loop/run_log.hpp"
#include "trainer/loop/save_failures.hpp"
#include "trainer/state/training_state.hpp"
#include "trainer/surroundings/fault_injection.hpp"
#include "trainer/surroundings/status.hpp"

namespace ddprun::trainer {

class Checkpointing {
 public:
  struct Setting {
    // Folder for checkpoints in the run directory; empty for a rank that only writes its node's copy.
    std::filesystem::path folder;
    CheckpointConfig config;
    std::filesystem::path local_copies{};  // folder of the node's copies (local_copies.hpp); empty if not configured
    WriterClaim::Generation generation{};
    HostCopy::Source source{};  // the device with the training state: a GPU or the CPU
    FailureHistory history{};   // failures of the run so far; only for "every": "auto"
    // Called before each save to `folder`. It writes the other files that the next invocation of the run needs, in case the
    // run directory was removed in the meantime. May throw std::system_error; the save then fails with this error.
    std::function<void()> save_run_files{};
    // Time between progress reports to the agent while training waits for a save.
    std::chrono::milliseconds report_interval{1000};
    // True for a rank that saves to `folder` in addition to rank 0. Such a rank does not replace the claim of rank 0 on the
    // folder (writer_claim.hpp). It does not save a step that is already published.
    bool second_writer = false;
  };
  Checkpointing(Setting setting, const Faults& faults, RunLog& log, Status& status);
  ~Checkpointing();  // waits for a save in progress, without reporting the result
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  // Claims the folder for this process, and removes unfinished checkpoints of earlier writers. Throws SupersededError if a
  // later writer has claimed the folder. After a disk error, this function logs a warning, and each save tries again to claim
  // the folder.
  void begin();

  // If the state is on a GPU, starts a thread that allocates host memory for copies of a state of this size. So the first save
  // need not wait for the memory.
  void prepare(const CheckpointState& live);

  // Call this after an evaluation on the test set. A checkpoint of the same step includes the result.
  void evaluated(std::int64_t step, const Evaluation& result);

  // Returns true if a save is due after `step` steps. A step-based save is due even while a save is in progress, so that the
  // saved steps do not depend on the speed of the disk. A time-based save is due when its interval has passed since the last
  // save or the start, and no save is in progress. With keep_best, a save is also due after each evaluation.
  //
  // If nodes write copies, rank 0 alone decides about time-based saves (requests_save()), because the nodes' clocks differ. All
  // ranks that write receive this decision in the same step, and call order().
  bool due(std::int64_t step) const;
  bool requests_save() const { return !setting_.local_copies.empty() && !setting_.folder.empty() && due_by_time(); }
  void order() { ordered_ = true; }

  enum class Need {
    // The save runs in the background, unless the config disables this. A failure causes only a warning.
    kUseful,
    // The checkpoint is published when the call returns. A failure throws, because the run would lose all steps since the last
    // checkpoint. The exception is UnsavedError, or InternalError if there is not enough memory. If the disk is full, the save
    // first waits as long as the config allows.
    kRequired,
  };
  // Waits for a save in progress, then saves. If a weight is NaN or infinite, publishes no checkpoint and throws DivergedError.
  // For a save in the background, the next call to report_finished() throws this error.
  void save(const TrainingState& state, const TrainConfig& config, const RunLength& length, const BucketOrder& bucket_order,
            int world, Need need);

  // The last save of a run is split into two calls, so that the caller can run collectives with the other ranks in between.
  // begin_last() starts the save. last_is_saved() waits for at most `at_most`, and returns whether the save has ended. `state`
  // must not change until then. Both functions throw the errors of save() with kRequired.
  void begin_last(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                  const BucketOrder& bucket_order, int world);
  bool last_is_saved(std::chrono::milliseconds at_most);

  // If a save in the background has ended since the last call, reports the result. Call this after each step. The call costs
  // one mutex lock.
  void report_finished();

  // Waits for at most 30 s for a save in progress, without reporting the result. A process that exits after another error calls
  // this.
  void wait_for_save() const;

 private:
  using Clock = std::chrono::steady_clock;

  // The data of one save. The background thread writes the members while the task runs, and the training thread reads them
  // after the task has ended.
  struct Save {
    std::int64_t step = 0;
    double pause_s = 0;
    double write_s = 0;
    SaveResult result{};
    std::string copy_problem{};    // warning about this node's copy; empty if there is none
    std::error_code copy_error{};  // error if this node's copy was not written; empty if it was written or is not needed
  };

  bool due_by_time() const;
  void begin_save(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                  const BucketOrder& bucket_order, int world, Need need);
  void end_awaited(Need need);
  void write(const CheckpointState& state);
  void write_copy(const CheckpointState& state);
  void wait_for_save_lock();
  void write_when_space_is_free(const CheckpointState& state, Clock::time_point begin);
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
  std::optional<LocalCopyFolder> local_copy_;
  bool ordered_ = false;  // true from the decision of rank 0 to save until the save starts
  HostCopy host_copy_;
  bool copy_refused_ = false;  // true after the memory for a copy could not be allocated; later saves then do not try to copy
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_ = Clock::now();
  std::optional<double> save_s_;               // average duration of a save, for "every": "auto"
  std::optional<double> reported_interval_s_;  // interval that was last written to the log
  std::int64_t evaluated_step_ = -1;
  std::optional<MetricList> evaluation_;
  Save current_;
  bool awaited_ = false;        // true if training waits for the current save
  bool required_ = false;       // true if the current save is the last of the run
  SaveFailures save_failures_;  // decides which failed saves to the run directory are reported
  SaveFailures copy_failures_;  // decides which failed saves of this node's copy are reported
  BackgroundTask task_;         // must be last: its destructor waits for the thread, which uses the other members
};

}  // namespace ddprun::trainer
