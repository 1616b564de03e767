// When a checkpoint is due and what happens when one is written: rank 0 alone does it, the others meet it again in the next
// all-reduce. Where nodes keep copies on their own disks, one worker of each writes the same checkpoint there. Training stands
// still for a copy of the state in host memory, and a thread writes that copy while training goes on; one save at a time. A
// save that fails is reported and training goes on with the older checkpoints, unless it is the run's last.
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
    std::filesystem::path folder;  // the run directory's; empty for a rank that writes a copy only
    CheckpointConfig config;
    std::filesystem::path local_copies{};  // trainer/checkpoint/local_copies.hpp; empty: none is asked for
    WriterClaim::Generation generation{};
    HostCopy::Source source{};  // where the training state is
    FailureHistory history{};   // of the run so far; needed for "every": "auto" only
    // Called before each save to `folder`: what the next start needs beside checkpoints, should the run directory have been
    // removed meanwhile. May throw std::system_error, which ends the save.
    std::function<void()> keep_beside{};
    std::chrono::milliseconds tell_every{1000};  // that a save that training waits for is being written
    // Rank 0 writes to `folder` as well, and keeps its claim. A step that is published already is not saved again.
    bool second_writer = false;
  };
  Checkpointing(Setting setting, const Faults& faults, RunLog& log, Status& status);
  ~Checkpointing();  // waits for a save in flight; what came of it is reported no more
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  // The folder is this process's from here on: claims it and takes earlier writers' leftovers away. Throws SupersededError when
  // a later writer has it. Trouble of the disk is a warning; each save tries again.
  void begin();

  // Beside a GPU: makes the memory of the copies while training goes on, for states as large as this one.
  void prepare(const CheckpointState& live);

  // The test set was evaluated after this step: a checkpoint of the same step says what came of it.
  void evaluated(std::int64_t step, const Evaluation& result);

  // Whether one is due when `step` steps are finished. Times count from the last save or the start, and wait for a save in
  // flight; steps don't wait, so that the same steps are saved whatever the disk does. Where nodes write copies, the time is
  // rank 0's word (asks()), which all of them hear at the same step (order()).
  bool due(std::int64_t step) const;
  bool asks() const { return !setting_.local_copies.empty() && !setting_.folder.empty() && due_by_time(); }
  void order() { ordered_ = true; }

  enum class Need {
    kUseful,  // in the background unless the config says otherwise; a failure is a warning
    // Published when it returns, written by the same thread; a failure throws InternalError: what the run did since the last
    // one would be lost. A full disk is waited for first, as long as the config says.
    kRequired,
  };
  // Waits for a save in flight, then saves. Throws DivergedError rather than publish weights that are not numbers; in the
  // background that is thrown by the next call of report_finished().
  void save(const TrainingState& state, const TrainConfig& config, const RunLength& length, const BucketOrder& bucket_order,
            int world, Need need);

  // The same for a run's last save, while others wait for it: begins it, then is asked until it has ended, and returns after
  // that time at the latest. `state` is not to change meanwhile. Throws as save() does.
  void begin_last(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                  const BucketOrder& bucket_order, int world);
  bool last_is_saved(std::chrono::milliseconds at_most);

  // Says what came of a save in the background, if one has ended since. Called at each step's end: it costs a lock.
  void report_finished();

  // Waits for a save in flight, for 30 s at most, and says nothing of it: for a process that ends because of something else.
  void settle() const;

 private:
  using Clock = std::chrono::steady_clock;

  // One save, from its start to its report. Written by the thread while the task runs, read by the caller when it has ended.
  struct Save {
    std::int64_t step = 0;
    double pause_s = 0;
    double write_s = 0;
    SaveResult result{};
    std::string copy_trouble{};    // why this node has no copy of it; empty when it has one or wants none
    std::error_code copy_error{};  // the same; none when the copy is there and something else is to be said
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
  bool ordered_ = false;  // and not yet saved
  HostCopy host_copy_;
  bool copy_refused_ = false;  // there was no memory for one
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_ = Clock::now();
  std::optional<double> save_s_;           // of a typical save: what "auto" goes by
  std::optional<double> said_interval_s_;  // the last one that was told
  std::int64_t evaluated_step_ = -1;
  std::optional<FigureList> evaluation_;
  Save current_;
  bool awaited_ = false;      // training waits for it
  bool required_ = false;     // it is the run's last
  SaveTrouble trouble_;       // with the run directory
  SaveTrouble copy_trouble_;  // with this node's copies
  BackgroundTask task_;       // last: its end waits for what uses the others
};

}  // namespace ddprun::trainer
