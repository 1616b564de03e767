// The connection of this worker process to its job: its rank, the agent, stop signals, and the current process group. ddptrain
// uses it in trainer/life. ddprun::Job (trainer/library) uses it for custom training loops. Without a ddprun agent (torchrun,
// srun, mpirun, a shell) there is only one process group, which is never replaced.
//
// Only the training thread may call the functions, unless a comment states otherwise.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/channel/message.hpp"
#include "trainer/job/recovery.hpp"
#include "trainer/parallel/peers.hpp"
#include "trainer/parallel/process_group.hpp"
#include "trainer/surroundings/agent_channel.hpp"
#include "trainer/surroundings/environment.hpp"
#include "trainer/surroundings/signals.hpp"
#include "trainer/surroundings/standby.hpp"
#include "trainer/surroundings/status.hpp"
#include "trainer/surroundings/stop_gate.hpp"
#include "trainer/surroundings/stopping.hpp"

namespace ddprun::trainer {

class JobPlace {
 public:
  JobPlace() = default;
  JobPlace(const JobPlace&) = delete;
  JobPlace& operator=(const JobPlace&) = delete;

  // Starts to receive the agent's messages and stop signals. `version` is the name and version of the program, for display.
  void begin(const WorkerEnvironment& environment, const std::string& version);
  // Call this in a standby, a worker process that was started without a rank. Blocks until the agent assigns a rank. Throws
  // std::runtime_error if the agent has exited.
  void wait_for_rank();
  // Returns true if, after the loss of another worker, this process can continue in a new process group on this device.
  bool groups_can_be_broken(c10::Device device, bool live_nccl) const;

  // Call this after the previous group has been destroyed. Returns the next group, which contains this worker's new rank (-1
  // if unchanged). Blocks until the next group is known. `held` is the number of finished steps in this rank's training state,
  // or nullopt if the state is not complete.
  channel::Regroup next_group(std::optional<std::int64_t> held);
  // Sets rank and world size to the values that next_group() has returned.
  void move_to(const channel::Regroup& place);
  // Forms the group. All ranks must call this. Throws UsageError for an unusable master address, and an exception of the
  // process group if another worker is lost. Sets `request.breaker`.
  void form_group(c10::Device device, GroupRequest request);
  // Destroys a process group that has lost a worker.
  void leave_group();
  // Shuts the group down cleanly. Call this after the last collective, when nothing uses the group any more.
  void shut_down();

  const WorkerEnvironment& environment() const { return environment_; }
  // Returns the generation of the current group: the round in a multi-node job, otherwise the restart count.
  int generation() const { return generation_; }
  // Call this only between form_group() and leave_group().
  const Peers& peers() const { return *peers_; }
  // Returns true if threads of an earlier group may still use LibTorch. The process must then exit without running LibTorch's
  // static destructors.
  bool has_leaked_groups() const { return leaked_groups_; }
  StopGate& gate() { return gate_; }
  Status& status() { return status_; }
  // agent() and recovery() return null if there is no ddprun agent.
  AgentChannel* agent() const { return agent_.get(); }
  Recovery* recovery() const { return recovery_.get(); }

 private:
  void listen_to_agent(const std::string& version);
  void note_wait(bool begins);

  WorkerEnvironment environment_;
  StopGate gate_;
  Status status_;
  // The threads of agent_ and signals_ use the next three members. So agent_ and signals_ are declared later, and are destroyed
  // first.
  std::unique_ptr<Stopping> stopping_;
  std::unique_ptr<Recovery> recovery_;
  Standby standby_;
  std::unique_ptr<AgentChannel> agent_;
  std::unique_ptr<SignalWatch> signals_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int generation_ = 0;
  bool leaked_groups_ = false;
  bool computes_ = false;  // true if the stage was kForward when a wait in shared memory started
  std::optional<Peers> peers_;
};

}  // namespace ddprun::trainer
