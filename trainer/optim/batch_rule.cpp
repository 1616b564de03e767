#include "trainer/optim/batch_rule.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace ddprun::trainer {

using Rule = OptimizerConfig::LrBatchRule;

double batch_factor(const TrainConfig& config) {
  const double ratio = static_cast<double>(config.batch_size) / static_cast<double>(config.optimizer.lr_base_batch);
  switch (config.optimizer.lr_batch_rule) {
    case Rule::kNone:
      break;
    case Rule::kLinear:
      return ratio;
    case Rule::kSquareRoot:
      return std::sqrt(ratio);
  }
  return 1;
}

double base_learning_rate(const TrainConfig& config) {
  return config.optimizer.lr * batch_factor(config);
}

std::string batch_rule_text(const TrainConfig& config, int world) {
  if (config.optimizer.lr_batch_rule == Rule::kNone) return "";
  std::array<char, 384> text{};
  std::snprintf(
      text.data(), text.size(),
      "the learning rate is %.6g: optimizer.lr %.6g times %.6g, because batch_size is %lld and optimizer.lr_base_batch "
      "is %lld (optimizer.lr_batch_rule %s); it does not depend on the number of workers (now %d %s)",
      base_learning_rate(config), config.optimizer.lr, batch_factor(config), static_cast<long long>(config.batch_size),
      static_cast<long long>(config.optimizer.lr_base_batch),
      config.optimizer.lr_batch_rule == Rule::kLinear ? "linear" : "square_root", world, world == 1 ? "worker" : "workers");
  return text.data();
}

}  // namespace ddprun::trainer
