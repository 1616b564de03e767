// The batch norm of the models: torch::nn::BatchNorm2d with optional statistics over all ranks. trainer/models makes it. The
// training loop switches the synchronization on (trainer/loop/workspace.cpp).
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

  std::shared_ptr<RankExchange> ranks;  // null: statistics over this rank's samples only
};

inline std::shared_ptr<BatchNorm> batch_norm(std::int64_t channels) {
  return std::make_shared<BatchNorm>(channels);
}

// While it exists, the batch norms of a model are synchronized: in training their statistics cover the samples of all ranks. An
// evaluation uses the running statistics and needs no exchange.
class SyncedBatchNorms {
 public:
  // `waits` is that of RankExchange.
  SyncedBatchNorms(const std::shared_ptr<torch::nn::Module>& model, c10::intrusive_ptr<c10d::ProcessGroup> group,
                   std::function<void(bool)> waits = {});
  ~SyncedBatchNorms();
  SyncedBatchNorms(const SyncedBatchNorms&) = delete;
  SyncedBatchNorms& operator=(const SyncedBatchNorms&) = delete;

  // Sets whether the samples of the next forward pass count; false for a stand-in.
  void count_own(bool counts);
  // Returns how long passes have waited for other ranks since the last call.
  std::chrono::nanoseconds take_waited();

 private:
  std::shared_ptr<RankExchange> ranks_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
};

}  // namespace ddprun::trainer
