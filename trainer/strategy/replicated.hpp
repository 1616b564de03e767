// Distributed data parallelism: each rank has the whole training state and processes a part of each batch. Gradients are summed
// over the ranks (trainer/parallel/data_parallel.hpp).
#pragma once

#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/parallel/data_parallel.hpp"
#include "trainer/parallel/peers.hpp"
#include "trainer/state/state_origin.hpp"
#include "trainer/strategy/strategy.hpp"

namespace ddprun::trainer {

class Replicated final : public Strategy {
 public:
  // The object trains the parameters of `state`. All ranks must call the constructor. Throws the errors of DataParallel.
  // `config` must outlive this object.
  Replicated(const TrainingState& state, const TrainConfig& config, const Peers& peers, StateOrigin origin);

  void zero_grad() override { parallel_.zero_grad(); }
  void before_forward(bool sync) override { parallel_.before_forward(sync); }
  void before_backward(const at::Tensor& loss, bool sync) override { parallel_.before_backward(loss, sync); }
  void after_backward(bool sync) override { parallel_.after_backward(sync); }
  std::chrono::nanoseconds take_waited() override { return parallel_.take_waited(); }
  Gradients agree(const StateValues& values, bool norm_wanted) override;
  void update(TrainingState& state, double lr) override { update_weights(state, lr); }
  BucketOrder bucket_order() const override { return parallel_.bucket_order(); }

 private:
  double clip(bool norm_wanted);

  const TrainConfig& config_;
  bool on_cpu_;
  std::vector<at::Tensor> trained_;  // trained parameters; their gradients are clipped by one common norm
  DataParallel parallel_;
};

}  // namespace ddprun::trainer
