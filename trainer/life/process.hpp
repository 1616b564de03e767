// The parts of a worker that live as long as its process, across all groups: rank, agent and signals, config, device, data.
// Worker makes one object and makes its calls in the order of declaration. The rest of life/ gets a reference to it.
//
// A call that fails leaves enough state behind to report its error. So the constructor does nothing that can fail.
#pragma once

#include <c10/core/Device.h>

#include <future>
#include <memory>
#include <optional>
#include <string>

#include "common/channel/message.hpp"
#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/job/job_place.hpp"
#include "trainer/life/inflated_sharing.hpp"
#include "trainer/life/subject.hpp"
#include "trainer/surroundings/fault_injection.hpp"
#include "trainer/surroundings/options.hpp"

namespace ddprun::trainer {

class Process {
 public:
  Process(const Options& options, const Subject& subject) : options_(options), subject_(subject) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Reads the environment, listens to agent and signals, and reads the config. All this can fail without contact to a peer or a
  // file of the run. Throws UsageError.
  void begin();
  // Call before the first tensor is made. Starts a thread that reads the data.
  void use(c10::Device device);
  // For a standby: sleeps until the agent assigns a rank. Throws std::runtime_error if the agent is gone.
  void wait_for_rank() { place_.wait_for_rank(); }
  // Call after the rank is known. Arms the faults meant for it and chooses a device if none is in use. Reports to the agent
  // whether its groups can be broken. Throws UsageError.
  void take_up_work();
  // Returns when the data is read. Throws the errors of the subject's read(): UsageError, or SourceError for all others.
  void await_data();
  // In the first group only: prints the subject's notes about its data, and waits for the data check. At a job's first start
  // that may take ten seconds. A replacement starts the check and does not wait, since its peers wait for it. `run_directory`
  // keeps the results. Throws UsageError with the name of the damaged sample.
  void check_data(const std::filesystem::path& run_directory);
  // Takes this place in a new group, on other machines or with other ranks. Throws UsageError if this number of workers cannot
  // share a batch.
  void move_to(const channel::Regroup& place);

  const Options& options() const { return options_; }
  const Subject& subject() const { return subject_; }
  JobPlace& place() { return place_; }
  const WorkerEnvironment& environment() const { return place_.environment(); }
  const TrainConfig& config() const { return config_; }
  TrainConfig& config() { return config_; }
  const Faults& faults() const { return faults_; }
  // The device chosen by use() or take_up_work().
  c10::Device device() const { return *device_; }
  // Whether a group that loses a peer is followed by another group with this process in it.
  bool groups_can_be_broken() const;
  // Empty if no device is in use.
  std::string device_name() const { return device_ ? device_->str() : ""; }
  // The kind of device, the memory of a GPU, and the precision if it is not fp32, since that changes what fits: "cuda with 40
  // GiB".
  std::string device_and_memory() const;
  StopGate& gate() { return place_.gate(); }
  Status& status() { return place_.status(); }
  // Both are null without an agent of ours.
  AgentChannel* agent() const { return place_.agent(); }
  Recovery* recovery() const { return place_.recovery(); }
  InflatedSharing& inflated() { return inflated_; }
  // Valid after begin().
  const Task& task() const { return *task_; }
  // Valid after await_data().
  const Sources& data() const { return data_; }

 private:
  void check_share() const;
  void arm_faults();

  const Options& options_;
  const Subject& subject_;
  JobPlace place_;
  TrainConfig config_;
  std::unique_ptr<Task> task_;
  Faults faults_;
  std::optional<c10::Device> device_;
  InflatedSharing inflated_;
  std::future<Sources> data_coming_;
  Sources data_;
  bool data_is_checked_ = false;
  std::unique_ptr<DataCheck> check_;
};

}  // namespace ddprun::trainer
