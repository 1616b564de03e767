// What a worker has for as long as its process lives, whatever group it is in: who it is, the agent and the signals that may
// tell it something, the config, the device, the data. Worker makes one and takes it through its calls in the order in which
// they are declared; everything else in life/ is given it.
//
// Each call leaves behind what an error needs to be reported, so the constructor does nothing that can fail.
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

  // Reads the environment, listens to agent and signals, reads the config: everything that can be wrong without a peer or a
  // file of the run being touched. Throws UsageError.
  void begin();
  // Before the first tensor. From here on a thread reads the data.
  void use(c10::Device device);
  // A standby's: sleeps until the agent gives it a rank. Throws std::runtime_error when the agent is gone.
  void wait_for_rank() { place_.wait_for_rank(); }
  // Once it has a rank: arms the faults that are meant for it, chooses a device unless one is in use, and tells the agent when
  // its groups can be broken. Throws UsageError.
  void take_up_work();
  // Returns when the data is there. Throws what the subject's read() threw: UsageError, or SourceError for all else.
  void await_data();
  // In the first group only: prints what the subject notes about its data, and waits for the check of it. At a job's first
  // start that may take ten seconds; a replacement, whose peers wait for it, starts the check and does not wait.
  // `run_directory` keeps what was checked. Throws UsageError naming what is damaged.
  void check_data(const std::filesystem::path& run_directory);
  // Makes that its place, in a group of other machines or of others than before. Throws UsageError when so many workers can't
  // share a batch.
  void move_to(const channel::Regroup& place);

  const Options& options() const { return options_; }
  const Subject& subject() const { return subject_; }
  JobPlace& place() { return place_; }
  const WorkerEnvironment& environment() const { return place_.environment(); }
  const TrainConfig& config() const { return config_; }
  TrainConfig& config() { return config_; }
  const Faults& faults() const { return faults_; }
  // Of use() or take_up_work().
  c10::Device device() const { return *device_; }
  // A group that loses a peer is followed by another one with this process in it.
  bool groups_can_be_broken() const;
  // "" while none is in use.
  std::string device_name() const { return device_ ? device_->str() : ""; }
  // Its kind, and a GPU's memory: "cuda with 40 GiB", and the precision where it is not fp32, since that changes what fits.
  std::string device_and_memory() const;
  StopGate& gate() { return place_.gate(); }
  Status& status() { return place_.status(); }
  // Null without an agent of ours, both.
  AgentChannel* agent() const { return place_.agent(); }
  Recovery* recovery() const { return place_.recovery(); }
  InflatedSharing& inflated() { return inflated_; }
  // After begin().
  const Task& task() const { return *task_; }
  // After await_data().
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
