#include "trainer/batch_norm/batch_norm.hpp"

#include <utility>

#include "common/base/error.hpp"
#include "trainer/batch_norm/rank_exchange.hpp"
#include "trainer/batch_norm/synced_batch_norm.hpp"

namespace ddprun::trainer {

at::Tensor BatchNorm::forward(const at::Tensor& x) {
  if (!ranks || !is_training()) return BatchNorm2dImpl::forward(x);
  num_batches_tracked += 1;
  return synced_batch_norm(x,
                           {.weight = weight,
                            .bias = bias,
                            .running_mean = running_mean,
                            .running_var = running_var,
                            .momentum = *options.momentum(),
                            .eps = options.eps()},
                           ranks);
}

SyncedBatchNorms::SyncedBatchNorms(const std::shared_ptr<torch::nn::Module>& model,
                                   c10::intrusive_ptr<c10d::ProcessGroup> group, std::function<void(bool)> waits)
    : ranks_(std::make_shared<RankExchange>(std::move(group), std::move(waits))) {
  for (const auto& module : model->modules()) {
    auto* const norm = module->as<BatchNorm>();
    if (norm == nullptr) continue;
    norm->ranks = ranks_;
    modules_.push_back(module);
  }
  if (modules_.empty())
    throw UsageError(
        "model.sync_batch_norm is true, but it works only with the batch norm layers of ddprun's ResNet models, and this model "
        "has none; set it to false");
}

SyncedBatchNorms::~SyncedBatchNorms() {
  for (const auto& module : modules_) module->as<BatchNorm>()->ranks.reset();
}

void SyncedBatchNorms::count_own(bool counts) {
  ranks_->count_own(counts);
}

std::chrono::nanoseconds SyncedBatchNorms::take_waited() {
  return ranks_->take_waited();
}

}  // namespace ddprun::trainer
