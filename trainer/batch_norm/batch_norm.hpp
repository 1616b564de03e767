// The batch norm of the models: torch::nn::BatchNorm2d, which can take its statistics over all ranks. trainer/models makes it,
// the loop lets those of a model be synced (trainer/loop/workspace.cpp).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/nn/modules/batchnorm.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace c10d {
class ProcessGroup;
}

namespace ddprun::trainer {

class RankExchange;

struct BatchNorm : torch::nn::BatchNorm2dImpl {
  explicit BatchNorm(std::int64_t channels) : BatchNorm2dImpl(channels) {}

  at::Tensor forward(const at::Tensor& x);

  std::shared_ptr<RankExchange> ranks;  // null: the statistics are those of this rank's samples
};

inline std::shared_ptr<BatchNorm> batch_norm(std::int64_t channels) {
  return std::make_shared<BatchNorm>(channels);
}

// While it lives, the batch norms of a model are synced: in training their statistics are those of all ranks' samples. An
// evaluation uses the running ones, and asks nobody.
class SyncedBatchNorms {
 public:
  // `waits`: as of RankExchange.
  SyncedBatchNorms(const std::shared_ptr<torch::nn::Module>& model, c10::intrusive_ptr<c10d::ProcessGroup> group,
                   std::function<void(bool)> waits = {});
  ~SyncedBatchNorms();
  SyncedBatchNorms(const SyncedBatchNorms&) = delete;
  SyncedBatchNorms& operator=(const SyncedBatchNorms&) = delete;

  // Of the next forward pass: whether its samples count, or stand for none.
  void count_own(bool counts);
  // How long passes have waited for other ranks, since the last call.
  std::chrono::nanoseconds take_waited();

 private:
  std::shared_ptr<RankExchange> ranks_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
};

}  // namespace ddprun::trainer
