// Implementation of workspace.hpp. The loader is created first, so that its threads load batches while the strategy compares
// the parameters of the ranks.
#include "trainer/loop/workspace.hpp"

#include <c10/util/StringUtil.h>

#include <cstdint>
#include <limits>

#include "common/base/error.hpp"
#include "trainer/strategy/replicated.hpp"

namespace ddprun::trainer {
namespace {

// Returns the synchronized batch norms, or null if they are not needed. Before a batch norm waits for other ranks, it sets the
// stage in the worker's status. If the job hangs, the stage shows whether a rank waits in a batch norm or computes.
std::unique_ptr<SyncedBatchNorms> synced_batch_norms(const TrainContext& context, const Peers& peers,
                                                     const TrainingState& state) {
  if (!context.config.model.sync_batch_norm || peers.world() == 1) return nullptr;
  return std::make_unique<SyncedBatchNorms>(state.model, peers.group(), [&status = context.status](bool waits) {
    status.at(waits ? channel::Stage::kBatchNorm : channel::Stage::kForward);
  });
}

// Returns the micro-batch size that all ranks use. With synchronized batch norms, each forward and backward pass is a
// collective, so all ranks must run the same number of passes. But the micro-batch sizes of the nodes can differ, in the
// config or after an out-of-memory error. The smallest size is used, because it fits into memory on every rank.
std::int64_t agreed_micro_batch_size(const TrainConfig& config, const Peers& peers) {
  if (!config.model.sync_batch_norm) return config.micro_batch_size;
  constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
  const std::int64_t smallest = peers.smallest(config.micro_batch_size > 0 ? config.micro_batch_size : kUnlimited);
  return smallest == kUnlimited ? 0 : smallest;
}

}  // namespace

Workspace make_workspace(const TrainContext& context, const Peers& peers, const TrainingState& state, StateOrigin origin) {
  const TrainConfig& config = context.config;
  if (config.data.augment.mixup > 0 && !context.task.mixes()) {
    throw UsageError("data.augment.mixup is " + c10::str(config.data.augment.mixup) +
                     ", but the task of this worker does not support mixup: set it to 0, or remove the key");
  }
  // Each rank has the whole model and trains on its own samples of the batch, so the data axis contains all ranks.
  Workspace work{context, peers, origin, {.data = peers.world(), .data_rank = peers.rank()}};
  work.loader = std::make_unique<Loader>(*context.data.train,
                                         LoaderOptions{.batch_size = config.batch_size,
                                                       .micro_batch_size = agreed_micro_batch_size(config, peers),
                                                       .prefetch = config.data.prefetch,
                                                       .threads = config.data.loader_threads,
                                                       .seed = config.seed,
                                                       .mixup = config.data.augment.mixup,
                                                       .world = work.mesh.data,
                                                       .rank = work.mesh.data_rank,
                                                       .equal_passes = config.model.sync_batch_norm},
                                         state.step, context.length.total_steps);
  work.synced = synced_batch_norms(context, peers, state);
  work.upload = std::make_unique<Upload>(*context.data.train, context.device);
  work.test_upload = std::make_unique<Upload>(*context.data.test, context.device);
  work.strategy = std::make_unique<Replicated>(state, config, peers, origin);
  return work;
}

}  // namespace ddprun::trainer
