#include "trainer/task/regression.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>

#include "common/base/error.hpp"
#include "trainer/models/model.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/table_network/table_network.hpp"

namespace ddprun::trainer {
namespace {

class Regression : public Task {
 public:
  explicit Regression(const TrainConfig& config) : config_(config) {}

  std::shared_ptr<torch::nn::Module> make_module(const Description& samples, c10::Device device) const override {
    if (samples.table) return make_table_network(config_.model, *samples.table, config_.seed, device);
    return make_model(config_.model, image_shape(config_.model, samples.tensors.at(0).sizes), samples.tensors.at(1).sizes.at(0),
                      config_.seed, device);
  }

  // Computes the same as Python's F.mse_loss. For a table, the targets are standardized: the squared error is divided by their
  // variance. Without this division, the best learning rate and the effect of clipping would depend on the unit of the target.
  at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
    const at::Tensor error = at::mse_loss(predicted(module, batch), batch.tensors.at(1), at::Reduction::Mean);
    const TargetPlan* const target = model_in(module).table_target();
    return target == nullptr ? error : error / target->variance;
  }

  double loss_unit(torch::nn::Module& module) const override {
    const TargetPlan* const target = model_in(module).table_target();
    return target == nullptr ? 1 : target->variance;
  }

  std::vector<std::string> figures() const override {
    if (config_.data.type != DataConfig::Type::kTable) return {"loss", "mean_absolute_error"};
    return {"loss", "mean_absolute_error", "baseline_loss", "baseline_mean_absolute_error"};
  }

  void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
    const at::Tensor& numbers = batch.tensors.at(1);
    const at::Tensor outputs = predicted(module, batch);
    const double weight = batch.weight * static_cast<double>(numbers.size(1));
    figures.add("loss", at::mse_loss(outputs, numbers, at::Reduction::None).sum(at::kDouble), weight);
    figures.add("mean_absolute_error", at::l1_loss(outputs, numbers, at::Reduction::None).sum(at::kDouble), weight);
    if (const TargetPlan* const target = model_in(module).table_target()) {
      const at::Tensor error = numbers.to(at::kDouble) - target->mean;
      figures.add("baseline_loss", error.square().sum(), weight);
      figures.add("baseline_mean_absolute_error", error.abs().sum(), weight);
    }
  }

 private:
  static Model& model_in(torch::nn::Module& module) {
    auto* const model = dynamic_cast<Model*>(&module);
    if (model == nullptr)
      throw InternalError("expected a module created by the regression task, found a module created by another task");
    return *model;
  }
  at::Tensor predicted(torch::nn::Module& module, const Batch& batch) const {
    return forward(model_in(module), batch.tensors.at(0), config_.channels_last);
  }

  TrainConfig config_;
};

}  // namespace

std::unique_ptr<Task> regression(const TrainConfig& config) {
  return std::make_unique<Regression>(config);
}

}  // namespace ddprun::trainer
