#include "trainer/loop/evaluate.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "common/system/made_ahead.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/task/figures.hpp"

namespace ddprun::trainer {

namespace {

// The block of the samples that is this rank's in the mesh.
Figures measured(const Task& task, torch::nn::Module& module, const Source& source, const TrainConfig& config,
                 c10::Device device, Upload& upload, const Mesh& mesh) {
  Figures figures(task.figures(), device);
  const Block block = evaluation_block(source.size(), mesh.data, mesh.data_rank);
  const std::int64_t size = config.eval_batch_size, batches = (block.last - block.first + size - 1) / size;
  const auto make = [&](std::int64_t number) {
    const std::int64_t first = block.first + number * size;
    std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(size, block.last - first)));
    std::iota(samples.begin(), samples.end(), first);
    return source.make(samples, {});
  };
  std::optional<MadeAhead<Batch>> ahead;
  if (config.data.loader_threads > 1 && batches > 1) {
    ahead.emplace(
        MadeAhead<Batch>::Options{.end = batches, .threads = config.data.loader_threads, .ahead = 1, .thread_name = "loader"},
        make);
  }
  for (std::int64_t number = 0; number < batches; ++number) {
    const Batch made = ahead ? ahead->next() : make(number);
    if (!(made.weight > 0)) continue;  // counts for nothing, and a mean over it is no number
    const Batch batch = upload.take(made);
    const Autocast precision(config.precision, device.type());
    task.measure(module, batch, figures);
  }
  return figures;
}

}  // namespace

Evaluation evaluate(const Task& task, torch::nn::Module& module, const Sources& data, const TrainConfig& config,
                    c10::Device device, Upload& upload, const Peers& peers, const Mesh& mesh,
                    const std::function<void()>& before_sum) {
  const at::NoGradGuard no_gradients;
  module.eval();
  const Figures tested = measured(task, module, *data.test, config, device, upload, mesh);
  std::optional<Figures> validated;
  if (data.validation) validated = measured(task, module, *data.validation, config, device, upload, mesh);
  std::vector<double> sums = tested.sums_and_weights();
  if (validated) std::ranges::copy(validated->sums_and_weights(), std::back_inserter(sums));
  module.train();
  if (before_sum) before_sum();
  peers.sum(sums);
  Evaluation result{.figures = {}, .samples = data.test->size()};
  const auto names = validated ? figures_of_evaluation(config, tested.names()) : tested.names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    result.figures.push_back({names[i], sums[2 * i] / sums[2 * i + 1]});
  }
  return result;
}

}  // namespace ddprun::trainer
