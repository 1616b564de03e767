#include "trainer/loop/evaluate.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "trainer/data/sampler.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/task/figures.hpp"

namespace ddprun::trainer {

Evaluation evaluate(const Task& task, torch::nn::Module& module, const Source& test, const TrainConfig& config,
                    c10::Device device, Upload& upload, const Peers& peers, const std::function<void()>& before_sum) {
  const at::NoGradGuard no_gradients;
  module.eval();
  Figures figures(task.figures(), device);
  const Block block = evaluation_block(test.size(), peers.world(), peers.rank());
  for (std::int64_t first = block.first; first < block.last; first += config.eval_batch_size) {
    std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(config.eval_batch_size, block.last - first)));
    std::iota(samples.begin(), samples.end(), first);
    const Batch made = test.make(samples, {});
    if (!(made.weight > 0)) continue;  // counts for nothing, and a mean over it is no number
    const Batch batch = upload.take(made);
    const Autocast precision(config.precision, device.type());
    task.measure(module, batch, figures);
  }
  std::vector<double> sums = figures.sums_and_weights();
  module.train();
  if (before_sum) before_sum();
  peers.sum(sums);
  Evaluation result{.figures = {}, .samples = test.size()};
  for (std::size_t i = 0; i < figures.names().size(); ++i) {
    result.figures.push_back({figures.names()[i], sums[2 * i] / sums[2 * i + 1]});
  }
  return result;
}

}  // namespace ddprun::trainer
