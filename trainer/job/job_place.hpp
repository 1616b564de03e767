// This process's place in its job: its rank, the agent, the signals, and its current group. trainer/life drives it for
// ddptrain; ddprun::Job (trainer/library) has one for a custom loop. Without an agent of ours (torchrun, srun, mpirun, a shell)
// there is only one group.
//
// All calls are for the training thread, unless a comment says otherwise.
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

  // Starts to listen to the agent and to signals. `version`: program and version for display.
  void begin(const WorkerEnvironment& environment, const std::string& version);
  // For a standby: sleeps until the agent assigns a rank. Throws std::runtime_error if the agent is gone.
  void wait_for_rank();
  // Whether a group on this device that loses a peer is followed by another group with this process in it.
  bool groups_can_be_broken(c10::Device device, bool live_nccl) const;

  // Returns the next group after the last one is gone, and this worker's place in it (rank -1: unchanged). Waits while this
  // worker is held. `held`: number of finished steps of the state that this rank could send to the others.
  channel::Regroup next_group(std::optional<std::int64_t> held);
  // Takes that place.
  void move_to(const channel::Regroup& place);
  // Collective. Forms the group. Throws UsageError for an unusable master address, and what the process group throws for a lost
  // peer.
  void form_group(c10::Device device, std::chrono::milliseconds timeout, bool live_nccl);
  // Ends a group that lost a peer.
  void leave_group();
  // Ends the group in order, after the last collective, when nothing uses the group any more.
  void shut_down();

  const WorkerEnvironment& environment() const { return environment_; }
  // Generation of the group: the round in a multi-node job, else the restart count.
  int generation() const { return generation_; }
  // Valid between form_group() and leave_group().
  const Peers& peers() const { return *peers_; }
  // Whether threads remain that use LibTorch. If so, the process must not run LibTorch's static destructors.
  bool left_groups_behind() const { return groups_left_behind_; }
  StopGate& gate() { return gate_; }
  Status& status() { return status_; }
  // Both are null without an agent of ours.
  AgentChannel* agent() const { return agent_.get(); }
  Recovery* recovery() const { return recovery_.get(); }

 private:
  void listen_to_agent(const std::string& version);

  WorkerEnvironment environment_;
  StopGate gate_;
  Status status_;
  // The listeners outlive the objects that call them.
  std::unique_ptr<Stopping> stopping_;
  std::unique_ptr<Recovery> recovery_;
  Standby standby_;
  std::unique_ptr<AgentChannel> agent_;
  std::unique_ptr<SignalWatch> signals_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int generation_ = 0;
  bool groups_left_behind_ = false;
  std::optional<Peers> peers_;
};

}  // namespace ddprun::trainer
