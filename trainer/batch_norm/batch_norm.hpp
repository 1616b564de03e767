// The batch norm layer of ddprun's models: torch::nn::BatchNorm2d, optionally with statistics over the samples of all ranks.
// trainer/models creates the layers. The training loop enables the synchronization (trainer/loop/workspace.cpp).
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

  std::shared_ptr<RankExchange> ranks;  // if null, the statistics cover only this rank's samples
};

inline std::shared_ptr<BatchNorm> batch_norm(std::int64_t channels) {
  return std::make_shared<BatchNorm>(channels);
}

// While this object exists, the batch norm layers of a model are synchronized: in training mode their statistics cover the
// samples of all ranks. Evaluation mode uses the running statistics and needs no communication.
class SyncedBatchNorms {
 public:
  // `waits` is called before and after each wait for other ranks (see the constructor of RankExchange).
  SyncedBatchNorms(const std::shared_ptr<torch::nn::Module>& model, c10::intrusive_ptr<c10d::ProcessGroup> group,
                   std::function<void(bool)> waits = {});
  ~SyncedBatchNorms();
  SyncedBatchNorms(const SyncedBatchNorms&) = delete;
  SyncedBatchNorms& operator=(const SyncedBatchNorms&) = delete;

  // Sets whether the statistics include this rank's samples in the next forward pass. Pass false on a rank without samples.
  // Such a rank runs the forward pass with a stand-in (a sample of weight 0).
  void count_own(bool counts);
  // Returns the time for which the forward and backward passes have waited for other ranks since the previous call to
  // take_waited().
  std::chrono::nanoseconds take_waited();

 private:
  std::shared_ptr<RankExchange> ranks_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
};

}  // namespace ddprun::trainer
