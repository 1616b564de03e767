// The parts of a worker that exist as long as its process, across all groups: rank, agent and signals, config, device, data,
// log and checkpoints. A process has one process group at a time.
//
// Worker makes one Process and calls the functions in the order of their declaration. The other classes in trainer/life get a
// reference to it.
//
// If a function fails, the object must still have enough state to report the error. So the constructor contains nothing that
// can fail.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/job/job_place.hpp"
#include "trainer/life/inflated_file_exchange.hpp"
#include "trainer/life/rank_records.hpp"
#include "trainer/life/subject.hpp"
#include "trainer/surroundings/fault_injection.hpp"
#include "trainer/surroundings/options.hpp"

namespace ddprun::trainer {

class Process {
 public:
  Process(const Options& options, const Subject& subject) : options_(options), training_program_(subject) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Reads the environment, connects to the agent, handles signals, and reads the config. It contacts no other rank and uses no
  // file of the run. Throws UsageError.
  void begin();
  // Call this before the first tensor is made. Starts a thread that reads the data.
  void use(c10::Device device);
  // Blocks a standby until the agent assigns a rank. Throws std::runtime_error if the agent has exited.
  void wait_for_rank() { place_.wait_for_rank(); }
  // Call this after the rank is assigned. Prepares the faults to be injected on this rank, and chooses a device if use() was
  // not called. Reports to the agent whether this process can continue in another group after a rank was lost. Throws
  // UsageError.
  void prepare_work();
  // Blocks until the data has been read. If read() of the subject throws a UsageError, throws that error. After any other
  // exception, throws a SourceError.
  void await_data();
  // Has an effect only in the first group: prints the subject's notes about its data, and waits for the data check. At a job's
  // first start the wait may take ten seconds. A replacement starts the check without waiting, since other ranks wait for it to
  // join. The check stores its results in `run_directory`. Throws UsageError with the name of the damaged sample.
  void check_data(const std::filesystem::path& run_directory);
  // Forms a process group with the rank that the agent assigns. Call this before each attempt to train. If another rank was
  // lost, first call place().leave_group(). `held` is the step of the training state that this rank could send to other ranks;
  // nullopt if this rank has no such state. Throws UsageError if the batch is too small for this number of ranks. Throws the
  // process group's errors if another rank is lost. `bucket_bytes` is the memory for the buckets of gradients
  // (bucket_memory()).
  void join(std::optional<std::int64_t> held, std::uint64_t bucket_bytes);

  const Options& options() const { return options_; }
  // Returns the absolute path of the run directory. Call this only after begin().
  std::filesystem::path run_directory() const;
  const Subject& subject() const { return training_program_; }
  JobPlace& place() { return place_; }
  const WorkerEnvironment& environment() const { return place_.environment(); }
  const TrainConfig& config() const { return config_; }
  TrainConfig& config() { return config_; }
  const Faults& faults() const { return faults_; }
  // Returns the device that use() or prepare_work() has set.
  c10::Device device() const { return *device_; }
  // Returns true if this process can continue in another group after its group has lost a rank.
  bool groups_can_be_broken() const;
  // Returns "" if no device is in use.
  std::string device_name() const { return device_ ? device_->str() : ""; }
  // Returns the kind of device, the memory of a GPU, and the precision if it is not fp32, such as "cuda with 40 GiB". All three
  // determine how many samples fit into memory.
  std::string device_and_memory() const;
  Status& status() { return place_.status(); }
  // agent() and recovery() return null if there is no ddprun agent.
  AgentChannel* agent() const { return place_.agent(); }
  Recovery* recovery() const { return place_.recovery(); }
  // Call this only between join() and place().leave_group(). All objects that were made from the result must be destroyed
  // before leave_group().
  const Peers& peers() const { return place_.peers(); }
  // Returns the generation of the current group. It is the round number in a multi-node job, and the restart count otherwise.
  int generation() const { return place_.generation(); }
  // The log is valid after join(). The records stay open when a group ends: a checkpoint that is being written does not depend
  // on the group.
  RankRecords& records() { return records_; }
  // Call this only after begin().
  const Task& task() const { return *task_; }
  // Call this only after await_data().
  const Sources& data() const { return data_; }

 private:
  void check_share() const;
  std::string stored_columns() const;
  void arm_faults();

  const Options& options_;
  const Subject& training_program_;
  JobPlace place_;
  TrainConfig config_;
  std::unique_ptr<Task> task_;
  Faults faults_;
  std::optional<c10::Device> device_;
  InflatedFileExchange inflated_;
  std::future<Sources> data_coming_;
  Sources data_;
  bool data_is_checked_ = false;
  std::unique_ptr<DataCheck> check_;
  RankRecords records_;  // destroyed first, because it uses other members
};

}  // namespace ddprun::trainer
