#include "trainer/loop/evaluate.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/system/made_ahead.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/loop/bad_data.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/reading/mapping_watch.hpp"
#include "trainer/reading/source_error.hpp"
#include "trainer/task/figures.hpp"

namespace ddprun::trainer {

namespace {

// Adds one batch. An index that is out of range is reported as an error of the data.
void measure(const Task& task, torch::nn::Module& module, const Batch& made, std::span<const std::int64_t> samples,
             const Source& source, const TrainConfig& config, c10::Device device, Upload& upload, Figures& figures) {
  const Autocast precision(config.precision, device.type());
  try {
    task.measure(module, upload.take(made), figures);
  } catch (const c10::IndexError& error) {
    refuse_index(error, samples, source, [&](const Batch& one) {
      Figures dropped(task.figures(), device);
      task.measure(module, upload.take(one), dropped);
    });
  }
}

// Measures this rank's block of the samples.
Figures measured(const Task& task, torch::nn::Module& module, const Source& source, const TrainConfig& config,
                 c10::Device device, Upload& upload, const Mesh& mesh) {
  Figures figures(task.figures(), device);
  const Block block = evaluation_block(source.size(), mesh.data, mesh.data_rank);
  const std::int64_t size = config.eval_batch_size, batches = (block.last - block.first + size - 1) / size;
  const auto samples_of = [&](std::int64_t number) {
    const std::int64_t first = block.first + number * size;
    std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(size, block.last - first)));
    std::iota(samples.begin(), samples.end(), first);
    return samples;
  };
  const auto make = [&](std::int64_t number) -> Batch {
    try {
      Batch batch = source.make(samples_of(number), {});
      require_mapped_files();  // a batch from a file that has changed is not used
      return batch;
    } catch (...) {
      rethrow_as_source_error();
    }
  };
  std::optional<MadeAhead<Batch>> ahead;
  if (config.data.loader_threads > 1 && batches > 1) {
    ahead.emplace(
        MadeAhead<Batch>::Options{.end = batches, .threads = config.data.loader_threads, .ahead = 1, .thread_name = "loader"},
        make);
  }
  for (std::int64_t number = 0; number < batches; ++number) {
    const Batch made = ahead ? ahead->next() : make(number);
    if (!(made.weight > 0)) continue;  // it counts for nothing, and a mean over it would be NaN
    measure(task, module, made, samples_of(number), source, config, device, upload, figures);
  }
  return figures;
}

}  // namespace

Evaluation evaluate(const Task& task, torch::nn::Module& module, const Sources& data, const TrainConfig& config,
                    c10::Device device, const Uploads& uploads, const Peers& peers, const Mesh& mesh,
                    const std::function<void()>& before_sum) {
  TriedEvaluation tried = try_evaluate(task, module, data, config, device, uploads, peers, mesh, before_sum);
  if (tried.failure) std::rethrow_exception(tried.failure);
  if (!tried.result) throw InternalError("the evaluation failed on another rank");
  return std::move(*tried.result);
}

TriedEvaluation try_evaluate(const Task& task, torch::nn::Module& module, const Sources& data, const TrainConfig& config,
                             c10::Device device, const Uploads& uploads, const Peers& peers, const Mesh& mesh,
                             const std::function<void()>& before_sum) {
  const at::NoGradGuard no_gradients;
  const std::vector<std::string> of_task = task.figures();
  const auto names = data.validation ? figures_of_evaluation(config, of_task) : of_task;
  std::vector<double> sums;
  TriedEvaluation tried;
  module.eval();
  try {
    sums = measured(task, module, *data.test, config, device, uploads.test, mesh).sums_and_weights();
    if (data.validation) {
      const Figures validated = measured(task, module, *data.validation, config, device, uploads.validation, mesh);
      std::ranges::copy(validated.sums_and_weights(), std::back_inserter(sums));
    }
  } catch (...) {
    tried.failure = std::current_exception();
    sums.assign(2 * names.size(), 0.0);
  }
  module.train();
  if (before_sum) before_sum();
  sums.push_back(tried.failure ? 1.0 : 0.0);  // how many ranks failed
  peers.sum(sums);
  if (sums.back() > 0) return tried;
  tried.result = Evaluation{.figures = {}, .samples = data.test->size()};
  for (std::size_t i = 0; i < names.size(); ++i) {
    tried.result->figures.push_back({names[i], sums[2 * i] / sums[2 * i + 1]});
  }
  return tried;
}

void evaluate_one_sample(const Task& task, torch::nn::Module& module, const Sources& data, const TrainConfig& config,
                         c10::Device device, const Uploads& uploads) {
  const at::NoGradGuard no_gradients;
  const auto first_of = [&](const Source& source, Upload& upload) {
    Figures dropped(task.figures(), device);
    const std::vector<std::int64_t> sample{0};
    const Batch made = source.make(sample, {});
    if (made.weight > 0) measure(task, module, made, sample, source, config, device, upload, dropped);
    dropped.sums_and_weights();  // waits for the device
  };
  module.eval();
  first_of(*data.test, uploads.test);
  if (data.validation) first_of(*data.validation, uploads.validation);
  module.train();
}

}  // namespace ddprun::trainer
