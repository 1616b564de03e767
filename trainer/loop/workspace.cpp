// Implementation of workspace.hpp. The loader comes first: its threads make batches while the ranks compare parameters.
#include "trainer/loop/workspace.hpp"

#include <c10/util/StringUtil.h>

#include <cstdint>
#include <limits>

#include "common/base/error.hpp"
#include "trainer/strategy/replicated.hpp"

namespace ddprun::trainer {
namespace {

// If a rank hangs, its stage shows whether it waits in a batch norm or computes.
std::unique_ptr<SyncedBatchNorms> synced_batch_norms(const Means& means, const Peers& peers, const TrainingState& state) {
  if (!means.config.model.sync_batch_norm || peers.world() == 1) return nullptr;
  return std::make_unique<SyncedBatchNorms>(state.model, peers.group(), [&status = means.status](bool waits) {
    status.at(waits ? channel::Stage::kBatchNorm : channel::Stage::kForward);
  });
}

// With synchronized batch norms each forward and backward pass exchanges data. So all ranks must make the same number of
// passes, with micro-batches of the same size. The smallest size is chosen, which fits into memory on every rank. The size may
// differ between nodes, by config or after an out-of-memory error.
std::int64_t agreed_micro_batch_size(const TrainConfig& config, const Peers& peers) {
  if (!config.model.sync_batch_norm) return config.micro_batch_size;
  constexpr std::int64_t kWholeShare = std::numeric_limits<std::int64_t>::max();
  const std::int64_t smallest = peers.smallest(config.micro_batch_size > 0 ? config.micro_batch_size : kWholeShare);
  return smallest == kWholeShare ? 0 : smallest;
}

}  // namespace

Workspace make_workspace(const Means& means, const Peers& peers, const TrainingState& state, StateOrigin origin) {
  const TrainConfig& config = means.config;
  if (config.data.augment.mixup > 0 && !means.task.mixes()) {
    throw UsageError("data.augment.mixup is " + c10::str(config.data.augment.mixup) +
                     ", but this worker's task does not mix samples; expected 0 or nothing");
  }
  // Each rank has the whole model, so each rank takes a share of the batch.
  Workspace work{means, peers, origin, {.data = peers.world(), .data_rank = peers.rank()}};
  work.loader = std::make_unique<Loader>(*means.data.train,
                                         LoaderOptions{.batch_size = config.batch_size,
                                                       .micro_batch_size = agreed_micro_batch_size(config, peers),
                                                       .prefetch = config.data.prefetch,
                                                       .threads = config.data.loader_threads,
                                                       .seed = config.seed,
                                                       .mixup = config.data.augment.mixup,
                                                       .world = work.mesh.data,
                                                       .rank = work.mesh.data_rank,
                                                       .equal_passes = config.model.sync_batch_norm},
                                         state.step, means.length.total_steps);
  work.synced = synced_batch_norms(means, peers, state);
  work.upload = std::make_unique<Upload>(*means.data.train, means.device);
  work.test_upload = std::make_unique<Upload>(*means.data.test, means.device);
  work.strategy = std::make_unique<Replicated>(state, config, peers, origin);
  return work;
}

}  // namespace ddprun::trainer
