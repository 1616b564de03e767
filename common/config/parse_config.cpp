// Implementation of parse_config.hpp, in five steps: check the syntax, apply the overrides, add the keys of a model of type
// "auto", check each key by the table in keys.hpp, and check the rules between keys. All steps add to one list of problems, so
// that all errors of a file are reported together.
#include "common/config/parse_config.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/suggest.hpp"
#include "common/config/json_positions.hpp"
#include "common/config/keys.hpp"
#include "common/config/known_names.hpp"
#include "common/config/parameter_groups.hpp"
#include "common/config/problem_list.hpp"
#include "common/config/read_config_text.hpp"
#include "common/config/rules.hpp"
#include "common/hugging_face/auto_model.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;

bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

// Defaults for data.type "table", so that the data set is the only setting that a config needs. docs/tables.md explains them.
// On a table with 50 rows, 30 epochs are only 30 steps, so the defaults include a minimum number of steps. The decay of the
// learning rate to 0 averages over the noise of the last steps. The layers of the mlp (fc1, fc2 and so on) learn more slowly
// than the linear layer. So on a small table, which has few steps, the result is close to that of a linear model.
std::vector<std::pair<std::string_view, Json>> defaults_for_tables() {
  const Json groups = Json::array({Json{{"parameters", "fc*"}, {"lr_scale", 0.03}}});
  return {{"model.type", "mlp"},        {"model.hidden", {64, 64}}, {"model.dropout", 0.1},
          {"data.test_table", ""},      {"batch_size", 64},         {"epochs", 30},
          {"min_steps", 1000},          {"eval_every_epochs", 0},   {"eval_every_steps", 500},
          {"optimizer.type", "adamw"},  {"optimizer.lr", 0.02},     {"optimizer.weight_decay", 0.1},
          {"optimizer.groups", groups}, {"schedule.type", "cosine"}};
}

class ConfigReader {
 public:
  ConfigReader(std::string_view text, const std::string& name)
      : text_(text), json_(parse_with_positions(text)), problems_(text, name) {
    for (const JsonProblem& problem : json_.problems) {
      problems_.add_at(problem.offset, problem.message, [problem, text] { return problem.hint(text); });
    }
  }

  TrainConfig read(const std::filesystem::path& base, const std::vector<std::string>& overrides,
                   std::vector<std::string>* notes, const TaskKeysOf& task_keys) {
    if (!json_.complete) throw_problems();
    if (!json_.root.is_object()) {
      add("", Part::kValue, "expected an object in braces, found " + shown(json_.root));
      throw_problems();
    }
    if (task_keys) adopt(task_keys(worker_named(base, overrides)));
    const Json before = overrides.empty() ? Json() : json_.root;
    for (std::size_t i = 0; i < overrides.size(); ++i) apply_override(overrides[i], i);
    drop_keys_of_replaced_types(before, notes);
    resolve_auto_model(base, notes);
    read_section("", json_.root);
    use_defaults_of_tables();
    check_presence();
    check_types();
    check_rules();
    make_paths_absolute(base);
    throw_problems();
    if (!given("/optimizer/weight_decay") && config_.data.type != DataConfig::Type::kTable) {
      config_.optimizer.weight_decay = config_.optimizer.type == OptimizerConfig::Type::kAdamw ? 0.01 : 0.0;
    }
    if (config_.data.type == DataConfig::Type::kCifar100) config_.data.classes = 100;
    if (config_.optimizer.type == OptimizerConfig::Type::kLion && !given("/optimizer/betas"))
      config_.optimizer.betas = {0.9, 0.99};
    return config_;
  }

 private:
  enum class Part { kKey, kValue };

  struct Origin {
    std::size_t index = 0;
    std::string text;
  };

  // Adds a problem at the position of the value with that JSON pointer. If the text does not contain the value, uses the
  // nearest enclosing value.
  void add(std::string pointer, Part part, const std::string& message, ConfigProblems::Hint hint = {}) {
    for (;; part = Part::kKey) {
      if (const auto origin = origins_.find(pointer); origin != origins_.end()) {
        return problems_.add_override(origin->second.index, origin->second.text, message, std::move(hint));
      }
      if (const auto place = json_.places.find(pointer); place != json_.places.end()) {
        return problems_.add_at(part == Part::kKey ? place->second.key : place->second.value, message, std::move(hint));
      }
      pointer.resize(pointer.rfind('/'));  // the loop ends at the latest at the root, since the root always has a position
    }
  }

  void throw_problems() {
    if (!problems_.empty()) problems_.throw_all();
  }

  bool given(const std::string& pointer) const { return json_.root.contains(Json::json_pointer(pointer)); }

  // ---- the worker program's keys ----

  void adopt(TaskConfig task) {
    config_.task = std::move(task);
    known_ = KnownNames(config_.task);
  }

  // Returns the worker program that the config or an override names. The parser needs the program's keys to read the
  // overrides, so this function runs first. An invalid value is reported later, with the other errors.
  std::string worker_named(const std::filesystem::path& base, const std::vector<std::string>& overrides) const {
    constexpr std::string_view kOverride = "worker=";
    Json value = json_.root.value("worker", Json());
    for (const std::string& text : overrides) {
      if (text.starts_with(kOverride)) value = override_value("worker", text.substr(kOverride.size()));
    }
    return is_text(value) ? absolute_path(value.get<std::string>(), base) : "";
  }

  // ---- overrides ----

  void apply_override(const std::string& text, std::size_t index) {
    const Origin origin{index, text};
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return problems_.add_override(index, text, "expected KEY=VALUE, for example optimizer.lr=0.01");
    }
    if (!is_utf8(text)) return problems_.add_override(index, "...", "expected UTF-8");
    const std::string path = text.substr(0, equals);
    Json* at = &json_.root;
    std::string pointer;
    std::istringstream names(path + ".");
    std::vector<std::string> steps;
    for (std::string step; std::getline(names, step, '.');) steps.push_back(step);
    for (const std::string& step : steps) {
      if (step.empty())
        return problems_.add_override(index, text, "expected a name before and after each dot, found '" + path + "'");
      if (!at->is_object())
        return problems_.add_override(index, text, "expected an object at " + pointer + ", found " + shown(*at));
      pointer = pointer_to(pointer, step);
      const bool last = &step == &steps.back();
      if (last) forget(pointer);
      if (last || !at->contains(step)) {
        origins_[pointer] = origin;
        (*at)[step] = Json::object();
      }
      at = &(*at)[step];
    }
    *at = override_value(path, text.substr(equals + 1));
  }

  // Removes the positions and origins of a value that an override replaces.
  void forget(const std::string& pointer) {
    const auto inside = [&](const auto& entry) { return entry.first == pointer || entry.first.starts_with(pointer + "/"); };
    std::erase_if(json_.places, inside);
    std::erase_if(origins_, inside);
  }

  // If an override changes the type of a section, removes the keys in the file that only the old type has. Without this rule,
  // users would get errors about these keys. Keys from overrides are not removed. A key that was already wrong for the old
  // type remains an error.
  void drop_keys_of_replaced_types(const Json& before, std::vector<std::string>* notes) {
    for (const Key& type : config_keys()) {
      const Json::json_pointer pointer(type.pointer());
      if (type.name != "type" || !origins_.contains(type.pointer()) || !given(type.pointer())) continue;
      const Json& now = json_.root.at(pointer);
      const Json old = before.contains(pointer) ? before.at(pointer) : type.get(TrainConfig{});
      if (!accepts(type.kind, now) || !old.is_string() || old == now) continue;
      std::string dropped;
      for (const Key& key : config_keys()) {
        if (key.section != type.section || !given(key.pointer()) || origins_.contains(key.pointer())) continue;
        if (!key.exists_for(old) || key.exists_for(now)) continue;
        json_.root.at(Json::json_pointer(pointer.parent_pointer())).erase(key.name);
        dropped += (dropped.empty() ? "" : ", ") + key.dotted();
      }
      if (dropped.empty() || notes == nullptr) continue;
      notes->push_back("override " + type.dotted() + "=" + now.get<std::string>() +
                       ": ignoring the keys in the file for type " + shown(old) + ": " + dropped);
    }
  }

  // Replaces model.type "auto" by the type and keys of the model in model.init.
  void resolve_auto_model(const std::filesystem::path& base, std::vector<std::string>* notes) {
    if (!given("/model/type") || json_.root["model"]["type"] != "auto") return;
    const Json init = json_.root["model"].value("init", Json());
    if (!is_text(init)) {
      add("/model/init", Part::kValue,
          "model.type \"auto\" requires model.init: set it to the folder of a Hugging Face model (/model/init)");
      throw_problems();
    }
    AutoModel model;
    try {
      model = with_model_of(json_.root, read_hugging_face_folder(absolute_path(init.get<std::string>(), base)));
    } catch (const UsageError& problem) {
      model.problems.push_back({"/model/init", std::string(problem.what()) + " (/model/init)"});
    }
    for (const AutoModel::Problem& problem : model.problems) add(problem.pointer, Part::kValue, problem.message);
    throw_problems();
    json_.root = std::move(model.config);
    if (notes != nullptr) notes->push_back(model.note);
  }

  Json override_value(const std::string& path, const std::string& text) const {
    const Key* const key = known_.find(path);
    // The value of a text key stays text even if it could be a number, as in name=2024.
    const bool wants_text = key != nullptr && std::holds_alternative<TextKind>(key->kind);
    try {
      Json value = Json::parse(text);
      if (!wants_text || value.is_string()) return value;
    } catch (const Json::out_of_range&) {  // 1e999 is too large for a double, and no key accepts infinity
      if (!wants_text) return std::numeric_limits<double>::infinity();
    } catch (const Json::exception&) {
    }
    return text;
  }

  // ---- keys ----

  void read_section(const std::string& section, const Json& object) {
    for (const auto& [name, value] : object.items()) {
      const std::string dotted = dotted_name(section, name);
      const std::string pointer = pointer_of(section, name);
      const Key* const key = name.find('.') == std::string::npos ? known_.find(dotted) : nullptr;
      if (key != nullptr) {
        read_value(*key, pointer, value);
      } else if (!name.empty() && name.find('.') == std::string::npos && known_.is_section(dotted)) {
        if (value.is_object()) {
          read_section(dotted, value);
        } else {
          failed_.insert(pointer);
          add(pointer, Part::kValue, "expected an object in braces, found " + found(pointer, value) + " (" + pointer + ")");
        }
      } else if (pointer != "/$schema") {
        std::string message = "unknown key '";
        message.append(name).append("' (").append(pointer).append(").");
        add(pointer, Part::kKey, message, [this, section, name = name] { return known_.suggestion(section, name); });
      }
    }
  }

  static std::string pointer_of(const std::string& section, const std::string& name) {
    std::string parent = section.empty() ? "" : "/" + section;
    std::replace(parent.begin(), parent.end(), '.', '/');
    return pointer_to(parent, name);
  }

  // Returns the value that was found, for messages. A number is shown as it is written in the file, because its parsed value
  // may differ, for example for 99999999999999999999999 or 1e-400.
  std::string found(const std::string& pointer, const Json& value) const {
    if (!value.is_number()) return shown(value);
    std::string_view written;
    if (const auto origin = origins_.find(pointer); origin != origins_.end()) {
      written = std::string_view(origin->second.text).substr(origin->second.text.find('=') + 1);
    } else if (const auto place = json_.places.find(pointer); place != json_.places.end()) {
      written = token_at(text_, place->second.value);
    }
    constexpr std::size_t kShown = 60;
    if (written.empty()) return shown(value);
    std::string out(written.substr(0, kShown));
    if (written.size() > kShown) out += "... (" + std::to_string(written.size()) + " characters)";
    if (!value.is_number_float()) return out;
    const bool zero = value.get<double>() == 0 &&
                      written.substr(0, written.find_first_of("eE")).find_first_of("123456789") != std::string_view::npos;
    if (zero) out += ", which is so close to 0 that it rounds to 0";
    if (std::isinf(value.get<double>())) out += ", which is too large: the maximum is about 1.8e308";
    return out;
  }

  void read_value(const Key& key, const std::string& pointer, const Json& value) {
    if (accepts(key.kind, value)) {
      key.set(config_, value);
      return;
    }
    failed_.insert(pointer);
    if (std::holds_alternative<ParameterGroupsKind>(key.kind) && value.is_array()) {
      if (const auto inside = problem_in_groups(value)) {
        const std::string place = pointer + inside->pointer;
        return add(place, Part::kValue, inside->message + " (" + place + ")");
      }
    }
    const bool strings_expected = std::holds_alternative<TextKind>(key.kind) || std::holds_alternative<NameKind>(key.kind);
    const std::string type = value.is_string() && !strings_expected ? "the string " : "";
    const bool has_zero = std::holds_alternative<TextKind>(key.kind) && value.is_string() &&
                          value.get_ref<const std::string&>().find('\0') != std::string::npos;
    std::string message = "expected " + (has_zero ? "a string without a null character, \\u0000" : expectation(key.kind)) +
                          ", found " + type + found(pointer, value) + " (" + pointer + ")";
    if (const auto* names = std::get_if<NameKind>(&key.kind); names != nullptr && value.is_string()) {
      const std::string hint = did_you_mean(value.get_ref<const std::string&>(), names->names);
      if (!hint.empty()) message += "." + hint;
    }
    add(pointer, Part::kValue, message);
  }

  // This function must run before the code checks keys that depend on model.type and schedule.type.
  void use_defaults_of_tables() {
    if (config_.data.type != DataConfig::Type::kTable || failed_.contains("/data/type")) return;
    for (const auto& [name, value] : defaults_for_tables()) {
      const Key& key = *find_key(name);
      if (!given(key.pointer())) key.set(config_, value);
    }
  }

  void check_presence() {
    for (const Key& key : known_.keys()) {
      if (!key.required || given(key.pointer()) || !applies(key, config_)) continue;
      const std::string section = "/" + key.section;
      if (failed_.contains(section) || (!key.section_types.empty() && failed_.contains(section + "/type"))) continue;
      add(section, Part::kKey, "key '" + key.dotted() + "' is missing: " + key.doc + " (" + key.pointer() + ")");
    }
  }

  // ---- rules between keys ----

  // Reports keys that do not exist for the type of their section. Without this error, such a key would have no effect, and the
  // user would not notice it.
  void check_types() {
    for (const Key& key : config_keys()) {
      if (key.section_types.empty() || !given(key.pointer()) || applies(key, config_)) continue;
      const Key& type = *find_key(key.section + ".type");
      if (failed_.contains(type.pointer())) continue;
      std::string types;
      for (const std::string_view name : key.section_types) types += (types.empty() ? "" : " or ") + shown(std::string(name));
      add(key.pointer(), Part::kKey,
          "key '" + key.name + "' is for " + key.section + " type " + types + " only, found type " + shown(type.get(config_)) +
              (given(type.pointer()) ? "" : " (the default)") + " (" + key.pointer() + ")");
    }
  }

  void check_rules() {
    for (const BrokenRule& rule : broken_rules(config_, failed_)) {
      add(rule.pointer, rule.at_key ? Part::kKey : Part::kValue, rule.message);
    }
  }

  static std::string absolute_path(const std::string& path, const std::filesystem::path& base) {
    std::string out = (base / path).lexically_normal().string();
    while (out.size() > 1 && out.back() == '/') out.pop_back();
    return out;
  }

  static bool needs_shell_expansion(const std::string& path) {
    return path == "~" || path.starts_with("~/") || path.starts_with('$');
  }

  void make_paths_absolute(const std::filesystem::path& base) {
    for (const Key& key : known_.keys()) {
      const auto* const kind = std::get_if<TextKind>(&key.kind);
      const std::string path = kind != nullptr && kind->path ? key.get(config_).get<std::string>() : "";
      if (path.empty()) continue;
      const std::string absolute = absolute_path(path, base);
      std::error_code ignored;
      if (needs_shell_expansion(path) && !std::filesystem::exists(absolute, ignored)) {
        add(key.pointer(), Part::kValue,
            "expected a path without '~' and '$NAME', which are not expanded here, found \"" + path + "\" (" + key.pointer() +
                ")");
      } else if (!is_utf8(absolute)) {
        add(key.pointer(), Part::kValue,
            "the absolute path contains a folder name that is not valid UTF-8, but config.json can contain only UTF-8: rename "
            "that folder (" +
                key.pointer() + ")");
      } else {
        key.set(config_, absolute);
      }
    }
  }

  std::string_view text_;
  PositionedJson json_;
  std::map<std::string, Origin> origins_;  // values from overrides, by JSON pointer
  std::set<std::string> failed_;           // pointers of invalid values; no rules are applied to them
  ConfigProblems problems_;
  TrainConfig config_;
  KnownNames known_{config_.task};
};

}  // namespace

TrainConfig parse_config(std::string_view text, const std::string& name, const std::filesystem::path& base,
                         const std::vector<std::string>& overrides, std::vector<std::string>* notes,
                         const TaskKeysOf& task_keys) {
  return ConfigReader(text, name).read(std::filesystem::absolute(base), overrides, notes, task_keys);
}

TrainConfig load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                        std::vector<std::string>* notes, const TaskKeysOf& task_keys) {
  const std::string text = read_config_text(file, "config");
  return parse_config(text, file.string(), std::filesystem::absolute(file).parent_path(), overrides, notes, task_keys);
}

}  // namespace ddprun
