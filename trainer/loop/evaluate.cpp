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
#include "common/system/prefetcher.hpp"
#include "trainer/data/sampler.hpp"
#include "trainer/loop/bad_data.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/reading/mapping_watch.hpp"
#include "trainer/reading/source_error.hpp"
#include "trainer/task/figures.hpp"

namespace ddprun::trainer {

namespace {

// Adds the metrics of one batch to `figures`. Throws UsageError, which names the sample, if a label or token is out of range.
void measure(const Evaluated& of, const Batch& made, std::span<const std::int64_t> samples, const Source& source,
             Upload& upload, Figures& figures) {
  const Autocast precision(of.config.precision, of.device.type());
  try {
    of.task.measure(of.module, upload.take(made), figures);
  } catch (const c10::IndexError& error) {
    refuse_index(error, samples, source, [&](const Batch& one) {
      Figures dropped(of.task.figures(), of.device);
      of.task.measure(of.module, upload.take(one), dropped);
    });
  }
}

// Returns the sums of the metrics over this rank's part of the samples. The sums are still on the device.
Figures measured(const Evaluated& of, const Source& source, Upload& upload, const Mesh& mesh) {
  const TrainConfig& config = of.config;
  Figures figures(of.task.figures(), of.device);
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
      // This throws if a data file has changed since it was mapped, because the batch may then be wrong.
      require_mapped_files();
      return batch;
    } catch (...) {
      rethrow_as_source_error();
    }
  };
  std::optional<Prefetcher<Batch>> ahead;
  if (config.data.loader_threads > 1 && batches > 1) {
    ahead.emplace(
        Prefetcher<Batch>::Options{.end = batches, .threads = config.data.loader_threads, .ahead = 1, .thread_name = "loader"},
        make);
  }
  for (std::int64_t number = 0; number < batches; ++number) {
    const Batch made = ahead ? ahead->next() : make(number);
    // If all samples of the batch have weight 0, the batch is skipped, because their mean would be NaN.
    if (!(made.weight > 0)) continue;
    measure(of, made, samples_of(number), source, upload, figures);
  }
  return figures;
}

}  // namespace

Evaluation evaluate(const Evaluated& of, const Peers& peers, const Mesh& mesh, const std::function<void()>& before_sum) {
  EvaluationAttempt attempt = try_evaluate(of, peers, mesh, before_sum);
  if (attempt.failure) std::rethrow_exception(attempt.failure);
  if (!attempt.result) throw InternalError("the evaluation failed on another rank");
  return std::move(*attempt.result);
}

EvaluationAttempt try_evaluate(const Evaluated& of, const Peers& peers, const Mesh& mesh,
                               const std::function<void()>& before_sum) {
  const Sources& data = of.data;
  const at::NoGradGuard no_gradients;
  const std::vector<std::string> of_task = of.task.figures();
  const auto names = data.validation ? metrics_of_evaluation(of.config, of_task) : of_task;
  std::vector<double> sums;
  EvaluationAttempt attempt;
  of.module.eval();
  try {
    sums = measured(of, *data.test, of.uploads.test, mesh).sums_and_weights();
    if (data.validation) {
      const Figures validated = measured(of, *data.validation, of.uploads.validation, mesh);
      std::ranges::copy(validated.sums_and_weights(), std::back_inserter(sums));
    }
  } catch (...) {
    attempt.failure = std::current_exception();
    sums.assign(2 * names.size(), 0.0);
  }
  of.module.train();
  if (before_sum) before_sum();
  // The last element counts the ranks on which the evaluation failed.
  sums.push_back(attempt.failure ? 1.0 : 0.0);
  peers.sum(sums);
  if (sums.back() > 0) return attempt;
  attempt.result = Evaluation{.figures = {}, .samples = data.test->size()};
  for (std::size_t i = 0; i < names.size(); ++i) attempt.result->figures.push_back({names[i], sums[2 * i] / sums[2 * i + 1]});
  return attempt;
}

void evaluate_one_sample(const Evaluated& of) {
  const at::NoGradGuard no_gradients;
  const auto first_of = [&](const Source& source, Upload& upload) {
    Figures dropped(of.task.figures(), of.device);
    const std::vector<std::int64_t> sample{0};
    const Batch made = source.make(sample, {});
    if (made.weight > 0) measure(of, made, sample, source, upload, dropped);
    dropped.sums_and_weights();  // waits for the GPU, so that an error in a kernel is thrown here
  };
  of.module.eval();
  first_of(*of.data.test, of.uploads.test);
  if (of.data.validation) first_of(*of.data.validation, of.uploads.validation);
  of.module.train();
}

}  // namespace ddprun::trainer
