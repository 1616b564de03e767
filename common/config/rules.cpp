#include "common/config/rules.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "common/config/keys.hpp"

namespace ddprun {
namespace {

class Rules {
 public:
  Rules(const TrainConfig& config, const std::set<std::string>& failed) : config_(config), failed_(failed) {}

  void check_all() {
    const TrainConfig& c = config_;
    if (c.micro_batch_size > c.batch_size && all_good({"/micro_batch_size", "/batch_size"})) {
      at_value("/micro_batch_size", "expected at most batch_size, which is " + std::to_string(c.batch_size) + ", found " +
                                        std::to_string(c.micro_batch_size));
    }
    if (c.optimizer.nesterov && c.optimizer.momentum == 0 &&
        all_good({"/optimizer/type", "/optimizer/momentum", "/optimizer/nesterov"}) &&
        c.optimizer.type == OptimizerConfig::Type::kSgd) {
      at_value("/optimizer/nesterov", "nesterov requires a momentum above 0, found 0: set momentum, or remove nesterov");
    }
    if (c.optimizer.lr_batch_rule != OptimizerConfig::LrBatchRule::kNone && c.optimizer.lr_base_batch == 0 &&
        all_good({"/optimizer/lr_batch_rule", "/optimizer/lr_base_batch"})) {
      at_value("/optimizer/lr_base_batch", "lr_batch_rule " + shown(find_key("optimizer.lr_batch_rule")->get(c)) +
                                               " requires lr_base_batch, found 0: set it to the batch_size for which lr was "
                                               "chosen");
    }
    for (const char* interval : {"/checkpoint/every_steps", "/checkpoint/every_seconds"}) {
      const bool set =
          std::string_view(interval).ends_with("steps") ? c.checkpoint.every_steps != 0 : c.checkpoint.every_seconds != 0;
      if (c.checkpoint.every != CheckpointConfig::Every::kAuto || !set || !all_good({"/checkpoint/every", interval})) continue;
      at_value(interval,
               "expected 0 or no value, since \"every\": \"auto\" chooses the interval: remove this key, or set \"every\": "
               "\"given\"");
    }
    if (const std::string& local = c.checkpoint.local_dir; !local.empty() && local.front() != '/') {
      at_value("/checkpoint/local_dir",
               "expected the absolute path of a folder on each node's own disk, found " + shown(local));
    }
    if (c.data.mean.has_value() != c.data.std.has_value() && all_good({"/data/mean", "/data/std"})) {
      const std::string found = c.data.mean ? "mean" : "std", missing = c.data.mean ? "std" : "mean";
      at_key("/data/" + found, "'" + found + "' is set without '" + missing + "': set both, or neither");
    }
    if (c.data.validation.fraction > 0 && c.data.validation.samples > 0 &&
        all_good({"/data/validation/fraction", "/data/validation/samples"})) {
      at_key("/data/validation", "expected either 'fraction' or 'samples', found both: remove one of them");
    }
    check_best();
    check_metrics();
    if (c.schedule.type == ScheduleConfig::Type::kOneCycle && c.schedule.warmup_steps != 0 &&
        all_good({"/schedule/type", "/schedule/warmup_steps"})) {
      at_value("/schedule/warmup_steps",
               "expected 0 or no value, since schedule type \"one_cycle\" has its own warm-up: set pct_start instead");
    }
    check_exported_models();
  }

  std::vector<BrokenRule> take() { return std::move(broken_); }

 private:
  void check_best() {
    const CheckpointConfig& c = config_.checkpoint;
    const bool known = c.best_by.ends_with("accuracy") || c.best_by.ends_with("loss");
    if (known || c.best_is != CheckpointConfig::BestIs::kAuto || !all_good({"/checkpoint/best_by", "/checkpoint/best_is"}))
      return;
    at_value("/checkpoint/best_by", "expected a metric name that ends in 'accuracy' or 'loss', found " + shown(c.best_by) +
                                        ": for this metric, also set checkpoint.best_is to \"highest\" or \"lowest\"");
  }

  void check_metrics() {
    const TrainConfig& c = config_;
    const auto needs_mode = [&](const std::string& section, const std::string& metric, MetricMode mode) {
      const std::string pointer = "/" + section + "/metric";
      const bool known = metric.ends_with("accuracy") || metric.ends_with("loss");
      if (known || mode != MetricMode::kAuto || !all_good({pointer.c_str(), ("/" + section + "/mode").c_str()})) return;
      at_value(pointer, "expected a metric name that ends in 'accuracy' or 'loss', found " + shown(metric) +
                            ": for this metric, also set " + section + ".mode to \"min\" or \"max\"");
    };
    const bool plateau = c.schedule.type == ScheduleConfig::Type::kPlateau;
    const bool stops = c.early_stopping.patience > 0;
    if (plateau) needs_mode("schedule", c.schedule.metric, c.schedule.mode);
    if (stops) needs_mode("early_stopping", c.early_stopping.metric, c.early_stopping.mode);
    if (c.eval_every_epochs != 0 || c.eval_every_steps != 0 || !all_good({"/eval_every_epochs", "/eval_every_steps"})) return;
    for (const auto& [used, pointer] : {std::pair{plateau, "/schedule/type"}, {stops, "/early_stopping/patience"}}) {
      if (!used || !all_good({pointer})) continue;
      at_value(pointer,
               "this value requires evaluations during the run, but eval_every_epochs and eval_every_steps are 0: set one of "
               "them above 0");
    }
  }

  // Checks that the model type and the data type fit together. An exported model also determines some settings, so the config
  // must not set their keys.
  void check_exported_models() {
    const TrainConfig& c = config_;
    if (!all_good({"/model/type", "/data/type"})) return;
    const bool images = c.data.type == DataConfig::Type::kIdx || c.data.type == DataConfig::Type::kCifar10 ||
                        c.data.type == DataConfig::Type::kCifar100 || c.data.type == DataConfig::Type::kFolder;
    if (!images && (c.data.augment.crop_padding != 0 || c.data.augment.flip || c.data.augment.mixup != 0) &&
        all_good({"/data/augment/crop_padding", "/data/augment/flip", "/data/augment/mixup"})) {
      at_key("/data/augment", "only images can be augmented, found data.type " + shown(find_key("data.type")->get(c)));
    }
    check_folder();
    if (c.data.type == DataConfig::Type::kTable) return check_tables();
    if (c.model.type == ModelConfig::Type::kVit) check_heads(1);
    if (c.data.type == DataConfig::Type::kSynthetic) check_synthetic();
    if (c.model.is_language_model() || c.data.type == DataConfig::Type::kTokens) return check_language_model();
    if (c.model.type != ModelConfig::Type::kExported) {
      if (c.data.is_table() || c.data.type == DataConfig::Type::kSynthetic) return check_tables();
      if (images) return;
      at_value("/data/type",
               "data.type \"tensors\" is for model type \"exported\" only, found model type " +
                   shown(find_key("model.type")->get(c)) +
                   ": use \"idx\", \"cifar10\", \"cifar100\", \"folder\", \"table\", \"csv\", \"arrays\" or \"synthetic\"");
      return;
    }
    if (c.model.path.empty() && all_good({"/model/path"})) {
      broken_.push_back(
          {"/model", true,
           "key 'model.path' is missing: set it to the folder that python3 -m ddprun.export wrote (/model/path)"});
    }
    const auto refuse = [&](bool set, const char* pointer, const std::string& why) {
      if (set && all_good({pointer})) at_value(pointer, why);
    };
    refuse(
        c.label_smoothing != 0, "/label_smoothing",
        "expected 0 or no value with an exported model, which contains its own loss: for label smoothing, change the loss in "
        "build() and export the model again");
    refuse(c.precision == TrainConfig::Precision::kBf16 || c.precision == TrainConfig::Precision::kFp16, "/precision",
           "expected \"fp32\" or \"tf32\" with an exported model, found " + shown(find_key("precision")->get(c)));
    refuse(
        c.model.lora.rank != 0, "/model/lora/rank",
        "expected 0 or no value with an exported model, whose layers cannot be changed: add the low-rank updates to the model "
        "in build() and export it again");
    refuse(c.channels_last, "/channels_last",
           "expected false or no value with an exported model, which contains its own memory layout");
  }

  void check_folder() {
    const DataConfig& d = config_.data;
    if (d.type == DataConfig::Type::kFolder) {
      if (d.resize == 0 || d.resize >= d.image_size || !all_good({"/data/resize", "/data/image_size"})) return;
      return at_value("/data/resize", "expected 0 or at least image_size, which is " + std::to_string(d.image_size) +
                                          ", found " + std::to_string(d.resize));
    }
    for (const auto& [set, pointer] :
         {std::pair{d.augment.random_crop, "/data/augment/random_crop"}, {d.augment.erase != 0, "/data/augment/erase"}}) {
      if (!set || !all_good({pointer})) continue;
      at_value(pointer,
               "this key is for data.type \"folder\" only, found data.type " + shown(find_key("data.type")->get(config_)));
    }
  }

  void check_tables() {
    const TrainConfig& c = config_;
    const bool mlp = c.model.type == ModelConfig::Type::kMlp;
    const bool csv = c.data.type == DataConfig::Type::kCsv;
    if ((csv || c.data.type == DataConfig::Type::kTable) && !mlp) {
      at_value("/model/type", "expected \"mlp\", since the samples of data.type " + shown(find_key("data.type")->get(c)) +
                                  " are not images, found " + shown(find_key("model.type")->get(c)));
    }
    if (csv && c.data.test_table.empty() && all_good({"/data/test_table"})) {
      at_value("/data/test_table", "expected a string that is not empty, found \"\"");
    }
    const bool channels = c.data.type == DataConfig::Type::kSynthetic && c.data.shape.size() == 3;
    if (c.channels_last && mlp && !channels && all_good({"/channels_last"})) {
      at_value("/channels_last", "expected false or no value, since the samples of this data have no channels");
    }
    if (c.data.predict == DataConfig::Predict::kNumber && all_good({"/data/predict"})) {
      if (c.label_smoothing != 0 && all_good({"/label_smoothing"})) {
        at_value("/label_smoothing",
                 "expected 0 or no value, since data.predict is \"number\" and such targets are not labels");
      }
      if (!c.data.class_names.empty() && all_good({"/data/class_names"})) {
        at_value("/data/class_names", "expected no value, since data.predict is \"number\" and such targets have no classes");
      }
    } else if (all_good({"/data/class_names"})) {
      check_class_names();
    }
  }

  // Class names must differ: if two were equal, the second class would have no samples.
  void check_class_names() {
    const std::vector<std::string>& names = config_.data.class_names;
    if (names.size() == 1) at_value("/data/class_names", "expected at least 2 names, found 1");
    for (auto name = names.begin(); name != names.end(); ++name) {
      const auto first = std::find(names.begin(), name, *name);
      if (first == name) continue;
      return at_value("/data/class_names", "expected a different name for each class, found " + shown(*name) + " for classes " +
                                               std::to_string(first - names.begin()) + " and " +
                                               std::to_string(name - names.begin()));
    }
  }

  // Some keys of synthetic data are only for language models, and other keys are only for all other models. Reports keys that
  // do not fit the model.
  void check_synthetic() {
    const TrainConfig& c = config_;
    const TrainConfig defaults;
    const bool tokens = c.model.is_language_model();
    for (const char* name : {"shape", "predict", "classes", "block_size", "vocab_size"}) {
      const bool of_tokens = std::string_view(name) == "block_size" || std::string_view(name) == "vocab_size";
      const Key& key = *find_key(std::string("data.") + name);
      if (of_tokens == tokens || key.get(c) == key.get(defaults) || failed_.contains(key.pointer())) continue;
      at_key(key.pointer(), "key '" + key.name + "' is for " +
                                (of_tokens ? "model type \"gpt\" or \"llama\" only, found "
                                           : "other model types than \"gpt\" and \"llama\", found ") +
                                shown(find_key("model.type")->get(c)));
    }
    // maximum for the number of samples and for the numbers in one sample, because both take memory
    constexpr std::int64_t kMax = 100'000'000;
    for (const auto& [samples, pointer] :
         {std::pair{c.data.train_samples, "/data/train_samples"}, {c.data.test_samples, "/data/test_samples"}}) {
      if (samples <= kMax || !all_good({pointer})) continue;
      at_value(pointer, "expected at most 100,000,000 samples for data.type \"synthetic\", found " + std::to_string(samples));
    }
    if (!all_good({"/data/shape"})) return;
    const bool takes_any = c.model.type == ModelConfig::Type::kMlp || c.model.type == ModelConfig::Type::kExported || tokens;
    if (!takes_any && c.data.shape.size() != 3) {
      at_value("/data/shape", "expected 3 sizes (channels, height and width) with model type " +
                                  shown(find_key("model.type")->get(c)) + ", found " + std::to_string(c.data.shape.size()));
    }
    std::int64_t numbers = 1;
    for (const std::int64_t size : c.data.shape) numbers = size > kMax / numbers ? kMax + 1 : numbers * size;
    if (numbers > kMax) {
      at_value("/data/shape", "expected at most 100,000,000 numbers per sample (the product of these sizes), found more");
    }
  }

  void check_language_model() {
    const TrainConfig& c = config_;
    const bool synthetic = c.data.type == DataConfig::Type::kSynthetic;
    if (!c.model.is_language_model() || (c.data.type != DataConfig::Type::kTokens && !synthetic)) {
      const std::string model = shown(find_key("model.type")->get(c));
      return at_value("/data/type", c.model.is_language_model()
                                        ? "expected \"tokens\" or \"synthetic\" with model type " + model + ", found " +
                                              shown(find_key("data.type")->get(c))
                                        : "data.type \"tokens\" is for model type \"gpt\" or \"llama\" only, found " + model);
    }
    if (c.data.end_of_document >= c.data.vocab_size && all_good({"/data/end_of_document", "/data/vocab_size"})) {
      at_value("/data/end_of_document", "expected a token below vocab_size, which is " + std::to_string(c.data.vocab_size) +
                                            ", found " + std::to_string(*c.data.end_of_document));
    }
    if (!all_good({"/model/n_embd", "/model/n_head", "/model/n_kv_head", "/model/head_dim"})) return;
    const bool llama = c.model.type == ModelConfig::Type::kLlama;
    // The width of a head must be even, because a rotary embedding rotates pairs of numbers.
    if (!llama || c.model.head_dim == 0) {
      check_heads(llama ? 2 : 1);
    } else if (c.model.head_dim % 2 != 0) {
      at_value("/model/head_dim", "expected an even number, found " + std::to_string(c.model.head_dim));
    }
    if (llama && c.model.rope_scaling == ModelConfig::RopeScaling::kLlama3 &&
        c.model.rope_high_freq_factor <= c.model.rope_low_freq_factor &&
        all_good({"/model/rope_scaling", "/model/rope_low_freq_factor", "/model/rope_high_freq_factor"})) {
      at_value("/model/rope_high_freq_factor", "expected a number above rope_low_freq_factor, which is " +
                                                   shown(c.model.rope_low_freq_factor) + ", found " +
                                                   shown(c.model.rope_high_freq_factor));
    }
    if (llama && c.model.n_kv_head > 0 && c.model.n_head % c.model.n_kv_head != 0) {
      at_value("/model/n_kv_head", "expected a divisor of n_head, which is " + std::to_string(c.model.n_head) + ", found " +
                                       std::to_string(c.model.n_kv_head));
    }
  }

  // Checks that all heads have the same width, which must be a multiple of `multiple`.
  void check_heads(std::int64_t multiple) {
    const ModelConfig& m = config_.model;
    const std::int64_t step = m.n_head * multiple;
    if (!all_good({"/model/n_embd", "/model/n_head"}) || m.n_embd % step == 0) return;
    at_value("/model/n_embd", "expected a multiple of " + std::string(multiple == 2 ? "2 * n_head" : "n_head") + ", which is " +
                                  std::to_string(step) + ", found " + std::to_string(m.n_embd));
  }

  bool all_good(std::initializer_list<const char*> pointers) const {
    return std::none_of(pointers.begin(), pointers.end(), [&](const char* pointer) { return failed_.contains(pointer); });
  }

  // at_key() and at_value() append the JSON pointer to the message.
  void at_key(const std::string& pointer, const std::string& message) {
    broken_.push_back({pointer, /*at_key=*/true, message + " (" + pointer + ")"});
  }
  void at_value(const std::string& pointer, const std::string& message) {
    broken_.push_back({pointer, /*at_key=*/false, message + " (" + pointer + ")"});
  }

  const TrainConfig& config_;
  const std::set<std::string>& failed_;
  std::vector<BrokenRule> broken_;
};

}  // namespace

std::vector<BrokenRule> broken_rules(const TrainConfig& config, const std::set<std::string>& failed) {
  Rules rules(config, failed);
  rules.check_all();
  return rules.take();
}

std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kShown = 60;
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
  if (text.size() <= kShown) return text;
  return value.is_string() ? "a string of " + std::to_string(value.get_ref<const std::string&>().size()) + " bytes"
                           : "an array of " + std::to_string(value.size());
}

}  // namespace ddprun
