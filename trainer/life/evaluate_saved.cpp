// Implementation of evaluate_saved.hpp.
#include "trainer/life/evaluate_saved.hpp"

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/base/figure.hpp"
#include "trainer/data/upload.hpp"
#include "trainer/loop/evaluate.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/parallel/device.hpp"
#include "trainer/parallel/peers.hpp"
#include "trainer/saved/saved_model.hpp"
#include "trainer/splits/held_out.hpp"
#include "trainer/state/training_state.hpp"
#include "trainer/surroundings/environment.hpp"
#include "trainer/task/figures.hpp"

namespace ddprun::trainer {

std::string evaluate_saved(const SavedModelOptions& options, const Subject& subject) {
  const auto own = subject.built_in ? std::nullopt : std::optional(TaskConfig(subject.keys));
  const SavedModel saved = find_saved_model(options.from, options.config, options.overrides, own);
  const TrainConfig& config = saved.config;
  use_determinism(config.deterministic);
  const auto task = subject.make_task(config);
  require_figures(config, figures_of_evaluation(config, task->figures()));
  const c10::Device device = choose_device(config.device, WorkerEnvironment{}, Otherwise::kCpu);
  use_precision(config.precision);
  const std::shared_ptr<torch::nn::Module> model = task->make_module(subject.describe(config), device);
  lay_out(*model, config.channels_last);
  take_weights(model, saved.weights, config);
  const Sources data = hold_out(subject.read(config, device, {}), config);
  Upload of_test(*data.test, device), of_train(*data.train, device);
  const Evaluation found = evaluate(*task, *model, data, config, device, Uploads(of_test, of_train),
                                    Peers(nullptr, /*rank=*/0, /*world=*/1, device), Mesh{});
  if (!options.json) {
    return "test " + figures_text(found.figures) + " on " + std::to_string(found.samples) +
           (found.samples == 1 ? " sample" : " samples");
  }
  nlohmann::ordered_json line;
  for (const Figure& figure : found.figures) line[figure.name] = figure.value;
  line["samples"] = found.samples;
  return line.dump();
}

}  // namespace ddprun::trainer
