// Creates the store and the process group for one set of workers. The store is one of these:
//
//  - for a single rank: HashStore
//  - under ddprun: the agent's store, over the worker channel
//  - otherwise: TCPStore at MASTER_ADDR:MASTER_PORT. Rank 0 is the server, unless torchrun's agent is already the server.
//
// The group uses shared memory or Gloo for CPU tensors, and NCCL for CUDA tensors. Gloo is bound to loopback if all workers are
// on one node.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <string>

#include "common/config/train_config.hpp"
#include "trainer/surroundings/agent_channel.hpp"
#include "trainer/surroundings/environment.hpp"

namespace ddprun::trainer {

class GroupBreaker;

// The properties of a new process group.
struct GroupRequest {
  std::chrono::milliseconds timeout{};  // limit for one collective
  DdpConfig::Backend backend = DdpConfig::Backend::kAuto;
  std::uint64_t bucket_bytes = 0;   // memory for the buckets of gradients in each rank; 0 if unknown
  GroupBreaker* breaker = nullptr;  // can end the waits in the group; for NCCL only if `live_nccl` is set
  bool live_nccl = false;
};

// Returns the reason why this backend can't be used on this device, or an empty string if it can. The function is pure.
std::string backend_problem(DdpConfig::Backend backend, c10::Device device);

// Returns true if workers in this environment use shared memory (trainer/parallel/shared) instead of Gloo. The function is
// pure.
bool wants_shared_memory(DdpConfig::Backend backend, const WorkerEnvironment& environment, c10::Device device);

// Returns the store of this process. `channel` may be null. `generation` must be the same as for make_process_group(): a wait
// in the agent's store ends when the agent starts a newer generation. Throws UsageError if MASTER_ADDR or MASTER_PORT is
// missing or unusable.
c10::intrusive_ptr<c10d::Store> make_store(const WorkerEnvironment& environment, AgentChannel* channel,
                                           std::chrono::milliseconds timeout, int generation = AgentChannel::kAnyGeneration);

// Returns when all ranks of this generation have called this function. The creation of a Gloo group also waits for all ranks,
// but that wait cannot be interrupted. So call this function before the group is created.
void barrier_in_store(const WorkerEnvironment& environment, const c10::intrusive_ptr<c10d::Store>& store, int generation,
                      std::chrono::milliseconds timeout);

// Returns true if another thread can end the waits in this device's group (group_breaker.hpp). This is true for Gloo. For NCCL
// it is true if `live_nccl` is set: each step then waits for the GPU (Peers::sync_device) and checks for an abort.
bool group_can_be_broken(c10::Device device, const WorkerEnvironment& environment, bool live_nccl);

// Creates a process group over all ranks. `generation` separates the keys of this group from the keys of earlier groups in the
// same store. Throws UsageError if request.backend does not support the device.
c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(const WorkerEnvironment& environment,
                                                          const c10::intrusive_ptr<c10d::Store>& store, c10::Device device,
                                                          int generation, const GroupRequest& request);

// Returns true if the error of a collective means that another rank was lost, or that the group was aborted for this reason.
bool is_lost_peer(const std::exception& error);

}  // namespace ddprun::trainer
