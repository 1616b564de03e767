#include "trainer/life/evaluate_saved.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/base/metric.hpp"
#include "trainer/data/upload.hpp"
#include "trainer/loop/evaluate.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/parallel/peers.hpp"
#include "trainer/saved/saved_model.hpp"
#include "trainer/splits/held_out.hpp"
#include "trainer/task/figures.hpp"

namespace ddprun::trainer {

std::string evaluate_saved(const SavedModelOptions& options, const Subject& subject) {
  const auto own = subject.built_in ? std::nullopt : std::optional(TaskConfig(subject.keys));
  const SavedModel saved = find_saved_model(options.from, options.config, options.overrides, own);
  const TrainConfig& config = saved.config;
  use_determinism(config.deterministic);
  const auto task = subject.make_task(config);
  require_metrics(config, metrics_of_evaluation(config, task->figures()));
  const auto [device, model] = load_model(saved, *task, subject.describe(config));
  const Sources data = hold_out(subject.read(config, device, {}), config);
  Upload of_test(*data.test, device), of_train(*data.train, device);
  const Evaluation found = evaluate({*task, *model, data, config, device, {of_test, of_train}},
                                    Peers(nullptr, /*rank=*/0, /*world=*/1, device), Mesh{});
  if (!options.json) {
    return "test " + metrics_text(found.figures) + " on " + std::to_string(found.samples) +
           (found.samples == 1 ? " sample" : " samples");
  }
  nlohmann::ordered_json line;
  for (const Metric& figure : found.figures) line[figure.name] = figure.value;
  line["samples"] = found.samples;
  return line.dump();
}

}  // namespace ddprun::trainer
