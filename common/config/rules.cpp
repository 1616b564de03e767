// Implementation of rules.hpp.
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
      add("/micro_batch_size", /*of_key=*/false,
          "expected at most batch_size, which is " + std::to_string(c.batch_size) + ", found " +
              std::to_string(c.micro_batch_size) + " (/micro_batch_size)");
    }
    if (c.optimizer.nesterov && c.optimizer.momentum == 0 &&
        all_good({"/optimizer/type", "/optimizer/momentum", "/optimizer/nesterov"}) &&
        c.optimizer.type == OptimizerConfig::Type::kSgd) {
      add("/optimizer/nesterov", /*of_key=*/false, "nesterov needs a momentum above 0, found 0 (/optimizer/nesterov)");
    }
    if (c.optimizer.lr_batch_rule != OptimizerConfig::LrBatchRule::kNone && c.optimizer.lr_base_batch == 0 &&
        all_good({"/optimizer/lr_batch_rule", "/optimizer/lr_base_batch"})) {
      add("/optimizer/lr_base_batch", /*of_key=*/false,
          "expected the batch_size for which lr is meant, as lr_batch_rule is " +
              shown(find_key("optimizer.lr_batch_rule")->get(c)) + ", found 0 (/optimizer/lr_base_batch)");
    }
    for (const char* interval : {"/checkpoint/every_steps", "/checkpoint/every_seconds"}) {
      const bool set =
          std::string_view(interval).ends_with("steps") ? c.checkpoint.every_steps != 0 : c.checkpoint.every_seconds != 0;
      if (c.checkpoint.every != CheckpointConfig::Every::kAuto || !set || !all_good({"/checkpoint/every", interval})) continue;
      add(interval, /*of_key=*/false,
          "expected 0 or nothing beside \"every\": \"auto\", which chooses the time by itself (" + std::string(interval) + ")");
    }
    if (const std::string& local = c.checkpoint.local_dir; !local.empty() && local.front() != '/') {
      add("/checkpoint/local_dir", /*of_key=*/false,
          "expected an absolute path, since it names a folder on each node's own disk, found " + shown(local) +
              " (/checkpoint/local_dir)");
    }
    if (c.data.mean.has_value() != c.data.std.has_value() && all_good({"/data/mean", "/data/std"})) {
      const std::string found = c.data.mean ? "mean" : "std", missing = c.data.mean ? "std" : "mean";
      add("/data/" + found, /*of_key=*/true,
          "expected '" + missing + "' as well as '" + found + "', or neither (/data/" + found + ")");
    }
    if (c.data.validation.fraction > 0 && c.data.validation.samples > 0 &&
        all_good({"/data/validation/fraction", "/data/validation/samples"})) {
      add("/data/validation", /*of_key=*/true, "expected 'fraction' or 'samples', found both (/data/validation)");
    }
    check_best();
    check_figures();
    if (c.schedule.type == ScheduleConfig::Type::kOneCycle && c.schedule.warmup_steps != 0 &&
        all_good({"/schedule/type", "/schedule/warmup_steps"})) {
      add("/schedule/warmup_steps", /*of_key=*/false,
          "expected 0 or nothing beside \"one_cycle\", which rises by itself: see pct_start (/schedule/warmup_steps)");
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
    add("/checkpoint/best_by", /*of_key=*/false,
        "set checkpoint.best_is to \"highest\" or \"lowest\": only for names that end in accuracy or loss is it known which is "
        "best, found " +
            shown(c.best_by) + " (/checkpoint/best_by)");
  }

  void check_figures() {
    const TrainConfig& c = config_;
    const auto needs_mode = [&](const std::string& section, const std::string& metric, FigureMode mode) {
      const std::string pointer = "/" + section + "/metric";
      const bool known = metric.ends_with("accuracy") || metric.ends_with("loss");
      if (known || mode != FigureMode::kAuto || !all_good({pointer.c_str(), ("/" + section + "/mode").c_str()})) return;
      add(pointer, /*of_key=*/false,
          "set " + section + ".mode to \"min\" or \"max\": only for names that end in accuracy or loss is it known which is " +
              "better, found " + shown(metric) + " (" + pointer + ")");
    };
    const bool plateau = c.schedule.type == ScheduleConfig::Type::kPlateau;
    const bool stops = c.early_stopping.patience > 0;
    if (plateau) needs_mode("schedule", c.schedule.metric, c.schedule.mode);
    if (stops) needs_mode("early_stopping", c.early_stopping.metric, c.early_stopping.mode);
    if (c.eval_every_epochs != 0 || c.eval_every_steps != 0 || !all_good({"/eval_every_epochs", "/eval_every_steps"})) return;
    for (const auto& [goes_by, pointer] : {std::pair{plateau, "/schedule/type"}, {stops, "/early_stopping/patience"}}) {
      if (!goes_by || !all_good({pointer})) continue;
      add(pointer, /*of_key=*/false,
          std::string(
              "expected evaluations during the run, which this goes by: set eval_every_epochs or eval_every_steps above "
              "0 (") +
              pointer + ")");
    }
  }

  // An exported model already defines some keys, so the config must not repeat them. The built-in models take only images.
  void check_exported_models() {
    const TrainConfig& c = config_;
    if (!all_good({"/model/type", "/data/type"})) return;
    const bool pictures = c.data.type == DataConfig::Type::kIdx || c.data.type == DataConfig::Type::kCifar10 ||
                          c.data.type == DataConfig::Type::kCifar100 || c.data.type == DataConfig::Type::kFolder;
    if (!pictures && (c.data.augment.crop_padding != 0 || c.data.augment.flip || c.data.augment.mixup != 0) &&
        all_good({"/data/augment/crop_padding", "/data/augment/flip", "/data/augment/mixup"})) {
      add("/data/augment", /*of_key=*/true,
          "only pictures can be augmented, found " + shown(find_key("data.type")->get(c)) + " for data.type (/data/augment)");
    }
    check_folder();
    if (c.model.type == ModelConfig::Type::kVit) check_heads(1);
    if (c.data.type == DataConfig::Type::kSynthetic) check_synthetic();
    if (c.model.is_language_model() || c.data.type == DataConfig::Type::kTokens) return check_language_model();
    if (c.model.type != ModelConfig::Type::kExported) {
      if (c.data.is_table() || c.data.type == DataConfig::Type::kSynthetic) return check_tables();
      if (pictures) return;
      add("/data/type", /*of_key=*/false,
          "expected \"idx\", \"cifar10\", \"cifar100\", \"folder\", \"csv\", \"arrays\" or \"synthetic\" beside a model of "
          "type " +
              shown(find_key("model.type")->get(c)) + "; \"tensors\" are for \"exported\" models (/data/type)");
      return;
    }
    if (c.model.path.empty() && all_good({"/model/path"})) {
      add("/model", /*of_key=*/true, "key 'model.path' is missing: the folder that the exporter wrote (/model/path)");
    }
    const auto refuse = [&](bool set, const char* pointer, const std::string& why) {
      if (set && all_good({pointer})) add(pointer, /*of_key=*/false, why + " (" + pointer + ")");
    };
    refuse(c.label_smoothing != 0, "/label_smoothing",
           "expected 0 or nothing beside an exported model, whose loss is part of it: export it with label smoothing");
    refuse(c.precision == TrainConfig::Precision::kBf16 || c.precision == TrainConfig::Precision::kFp16, "/precision",
           "expected \"fp32\" or \"tf32\" beside an exported model, found " + shown(find_key("precision")->get(c)));
    refuse(c.model.lora.rank != 0, "/model/lora/rank",
           "expected 0 or nothing beside an exported model, whose layers are part of it: export it with updates");
    refuse(c.channels_last, "/channels_last", "expected false or nothing beside an exported model, whose layout is part of it");
  }

  void check_folder() {
    const DataConfig& d = config_.data;
    if (d.type == DataConfig::Type::kFolder) {
      if (d.resize == 0 || d.resize >= d.image_size || !all_good({"/data/resize", "/data/image_size"})) return;
      return add("/data/resize", /*of_key=*/false,
                 "expected 0 or at least image_size, which is " + std::to_string(d.image_size) + ", found " +
                     std::to_string(d.resize) + " (/data/resize)");
    }
    for (const auto& [set, pointer] :
         {std::pair{d.augment.random_crop, "/data/augment/random_crop"}, {d.augment.erase != 0, "/data/augment/erase"}}) {
      if (!set || !all_good({pointer})) continue;
      add(pointer, /*of_key=*/false,
          "is for data.type \"folder\", found " + shown(find_key("data.type")->get(config_)) + " (" + pointer + ")");
    }
  }

  void check_tables() {
    const TrainConfig& c = config_;
    const bool mlp = c.model.type == ModelConfig::Type::kMlp;
    if (c.data.type == DataConfig::Type::kCsv && !mlp) {
      add("/model/type", /*of_key=*/false,
          "expected \"mlp\" beside \"csv\", whose samples are no pictures, found " + shown(find_key("model.type")->get(c)) +
              " (/model/type)");
    }
    const bool channels = c.data.type == DataConfig::Type::kSynthetic && c.data.shape.size() == 3;
    if (c.channels_last && mlp && !channels && all_good({"/channels_last"})) {
      add("/channels_last", /*of_key=*/false, "expected false or nothing beside data without channels (/channels_last)");
    }
    if (c.data.predict == DataConfig::Predict::kNumber && all_good({"/data/predict"})) {
      if (c.label_smoothing != 0 && all_good({"/label_smoothing"})) {
        add("/label_smoothing", /*of_key=*/false,
            "expected 0 or nothing where numbers are predicted, which are no labels (/label_smoothing)");
      }
      if (!c.data.class_names.empty() && all_good({"/data/class_names"})) {
        add("/data/class_names", /*of_key=*/false,
            "expected nothing where numbers are predicted, which have no classes (/data/class_names)");
      }
    } else if (all_good({"/data/class_names"})) {
      check_class_names();
    }
  }

  // If two classes had one name, the second would have no samples, and the model one output too many.
  void check_class_names() {
    const std::vector<std::string>& names = config_.data.class_names;
    if (names.size() == 1) {
      add("/data/class_names", /*of_key=*/false, "expected 2 names or more, found 1 (/data/class_names)");
    }
    for (auto name = names.begin(); name != names.end(); ++name) {
      const auto first = std::find(names.begin(), name, *name);
      if (first == name) continue;
      return add("/data/class_names", /*of_key=*/false,
                 "expected names that differ, found " + shown(*name) + " for the classes " +
                     std::to_string(first - names.begin()) + " and " + std::to_string(name - names.begin()) +
                     " (/data/class_names)");
    }
  }

  // Keys that only another kind of model needs do not apply to these samples.
  void check_synthetic() {
    const TrainConfig& c = config_;
    const TrainConfig defaults;
    const bool tokens = c.model.is_language_model();
    for (const char* name : {"shape", "predict", "classes", "block_size", "vocab_size"}) {
      const bool of_tokens = std::string_view(name) == "block_size" || std::string_view(name) == "vocab_size";
      const Key& key = *find_key(std::string("data.") + name);
      if (of_tokens == tokens || key.get(c) == key.get(defaults) || failed_.contains(key.pointer())) continue;
      add(key.pointer(), /*of_key=*/true,
          "key '" + key.name + "' is for " +
              (of_tokens ? "model type \"gpt\" or \"llama\" only, found " : "samples that are no tokens, found model type ") +
              shown(find_key("model.type")->get(c)) + " (" + key.pointer() + ")");
    }
    constexpr std::int64_t kMost = 100'000'000;  // numbers per sample, and samples: each takes memory
    for (const auto& [samples, pointer] :
         {std::pair{c.data.train_samples, "/data/train_samples"}, {c.data.test_samples, "/data/test_samples"}}) {
      if (samples <= kMost || !all_good({pointer})) continue;
      add(pointer, /*of_key=*/false,
          "expected at most 100,000,000 for data.type \"synthetic\", found " + std::to_string(samples) + " (" + pointer + ")");
    }
    if (!all_good({"/data/shape"})) return;
    const bool takes_any = c.model.type == ModelConfig::Type::kMlp || c.model.type == ModelConfig::Type::kExported || tokens;
    if (!takes_any && c.data.shape.size() != 3) {
      add("/data/shape", /*of_key=*/false,
          "expected 3 sizes, channels, height and width, beside a model of type " + shown(find_key("model.type")->get(c)) +
              ", found " + std::to_string(c.data.shape.size()) + " (/data/shape)");
    }
    std::int64_t numbers = 1;
    for (const std::int64_t size : c.data.shape) numbers = size > kMost / numbers ? kMost + 1 : numbers * size;
    if (numbers > kMost) {
      add("/data/shape", /*of_key=*/false, "expected at most 100,000,000 numbers in a sample, found more (/data/shape)");
    }
  }

  void check_language_model() {
    const TrainConfig& c = config_;
    const bool synthetic = c.data.type == DataConfig::Type::kSynthetic;
    if (!c.model.is_language_model() || (c.data.type != DataConfig::Type::kTokens && !synthetic)) {
      return add("/data/type", /*of_key=*/false,
                 "expected \"tokens\" or \"synthetic\" beside a model of type \"gpt\" or \"llama\", and \"tokens\" beside no "
                 "other, found " +
                     shown(find_key("data.type")->get(c)) + " beside " + shown(find_key("model.type")->get(c)) +
                     " (/data/type)");
    }
    if (c.data.end_of_document >= c.data.vocab_size && all_good({"/data/end_of_document", "/data/vocab_size"})) {
      add("/data/end_of_document", /*of_key=*/false,
          "expected a token below vocab_size, which is " + std::to_string(c.data.vocab_size) + ", found " +
              std::to_string(*c.data.end_of_document) + " (/data/end_of_document)");
    }
    if (!all_good({"/model/n_embd", "/model/n_head", "/model/n_kv_head"})) return;
    const bool llama = c.model.type == ModelConfig::Type::kLlama;
    check_heads(llama ? 2 : 1);  // rotary embeddings rotate pairs of numbers
    if (llama && c.model.n_kv_head > 0 && c.model.n_head % c.model.n_kv_head != 0) {
      add("/model/n_kv_head", /*of_key=*/false,
          "expected a divisor of n_head, which is " + std::to_string(c.model.n_head) + ", found " +
              std::to_string(c.model.n_kv_head) + " (/model/n_kv_head)");
    }
  }

  // All heads have the same width, a multiple of `multiple`.
  void check_heads(std::int64_t multiple) {
    const ModelConfig& m = config_.model;
    const std::int64_t step = m.n_head * multiple;
    if (!all_good({"/model/n_embd", "/model/n_head"}) || m.n_embd % step == 0) return;
    add("/model/n_embd", /*of_key=*/false,
        "expected a multiple of " + std::string(multiple == 2 ? "2 n_head" : "n_head") + ", which is " + std::to_string(step) +
            ", found " + std::to_string(m.n_embd) + " (/model/n_embd)");
  }

  bool all_good(std::initializer_list<const char*> pointers) const {
    return std::none_of(pointers.begin(), pointers.end(), [&](const char* pointer) { return failed_.contains(pointer); });
  }

  void add(std::string pointer, bool of_key, std::string message) {
    broken_.push_back({std::move(pointer), of_key, std::move(message)});
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
