// This process's place in its job: who it is, the agent and the signals that may tell it something, and the group that it is in
// at the moment. ddptrain's is taken through its life by trainer/life; a loop of somebody's own has one in ddprun::Job
// (trainer/library). Without an agent of ours (torchrun, srun, mpirun, a shell) there is one group and no other.
//
// Who a call is for says so; all others are the training thread's.
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

  // Listens to the agent and to signals. `version`: who speaks, for people.
  void begin(const WorkerEnvironment& environment, const std::string& version);
  // A standby's: sleeps until the agent gives it a rank. Throws std::runtime_error when the agent is gone.
  void wait_for_rank();
  // A group on this device that loses a peer is followed by another one with this process in it.
  bool groups_can_be_broken(c10::Device device, bool live_nccl) const;

  // The next group begins, the one before is gone: which it is, and the place in it where that is a new one (rank -1: it
  // stays). Waits while this worker is held. `held`: finished steps of the state that this rank could give the others.
  channel::Regroup next_group(std::optional<std::int64_t> held);
  // Makes that its place.
  void move_to(const channel::Regroup& place);
  // Collective. Makes that group. Throws UsageError for a master that can't be used, and what the process group throws for a
  // lost peer.
  void form_group(c10::Device device, std::chrono::milliseconds timeout, bool live_nccl);
  // Ends a group that lost a peer.
  void leave_group();
  // Ends the group in order, when all have met for the last time and nothing uses it any more.
  void shut_down();

  const WorkerEnvironment& environment() const { return environment_; }
  // Of the group: the round on many machines, else the restart count.
  int generation() const { return generation_; }
  // Between form_group() and leave_group().
  const Peers& peers() const { return *peers_; }
  // Threads are left that use LibTorch: this process must not take it apart.
  bool left_groups_behind() const { return groups_left_behind_; }
  StopGate& gate() { return gate_; }
  Status& status() { return status_; }
  // Null without an agent of ours, both.
  AgentChannel* agent() const { return agent_.get(); }
  Recovery* recovery() const { return recovery_.get(); }

 private:
  void listen_to_agent(const std::string& version);

  WorkerEnvironment environment_;
  StopGate gate_;
  Status status_;
  // Who listens outlives what it listens to.
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
