// From text to values: syntax, then overrides, then each key by the table of keys.hpp, then the rules between keys. Every step
// adds to one list of problems, so that all mistakes of a file are shown at once.
#include "common/config/parse_config.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/suggest.hpp"
#include "common/config/config_problems.hpp"
#include "common/config/json_positions.hpp"
#include "common/config/keys.hpp"
#include "common/config/parameter_groups.hpp"
#include "common/config/read_config_text.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;

std::string shown(const Json& value) {
  constexpr std::size_t kShown = 60;
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  if (text.size() <= kShown) return text;
  return value.is_string() ? "a string of " + std::to_string(value.get_ref<const std::string&>().size()) + " bytes"
                           : "an array of " + std::to_string(value.size());
}

bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

bool is_section(std::string_view dotted) {
  const auto& sections = config_sections();
  return std::any_of(sections.begin(), sections.end(), [&](const Section& s) { return s.name == dotted; });
}

std::string joined(const std::string& section, const std::string& name) {
  return section.empty() ? name : section + "." + name;
}

// The names that a section may contain.
std::vector<std::string_view> keys_and_sections_in(const std::string& section) {
  std::vector<std::string_view> out;
  for (const Key& key : config_keys()) {
    if (key.section == section) out.push_back(key.name);
  }
  for (const Section& child : config_sections()) {
    const std::size_t dot = child.name.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : child.name.substr(0, dot);
    if (!child.name.empty() && parent == section) out.push_back(std::string_view(child.name).substr(dot + 1));
  }
  return out;
}

// For a key in the wrong place ("lr" at the top) it suggests the right place; otherwise the nearest name of the section.
std::string suggestion(const std::string& section, const std::string& name) {
  if (const std::size_t dot = name.find('.'); dot != std::string::npos && find_key(joined(section, name)) != nullptr) {
    return " Write it as \"" + name.substr(0, dot) + "\": {\"" + name.substr(dot + 1) + "\": ...}.";
  }
  std::vector<std::string> elsewhere;
  for (const Key& key : config_keys()) {
    if (key.name == name) elsewhere.push_back(key.dotted());
  }
  if (elsewhere.size() == 1) return " Did you mean '" + elsewhere.front() + "'?";
  return did_you_mean(name, keys_and_sections_in(section));
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
                   std::vector<std::string>* notes) {
    if (!json_.complete) throw_problems();
    if (!json_.root.is_object()) {
      add("", Part::kValue, "expected an object in braces, found " + shown(json_.root));
      throw_problems();
    }
    const Json before = overrides.empty() ? Json() : json_.root;
    for (std::size_t i = 0; i < overrides.size(); ++i) apply_override(overrides[i], i);
    drop_keys_of_replaced_types(before, notes);
    read_section("", json_.root);
    check_presence();
    check_types();
    check_rules();
    make_absolute(config_.data.dir, "/data/dir", base);
    make_absolute(config_.model.init, "/model/init", base);
    make_absolute(config_.model.path, "/model/path", base);
    make_absolute(config_.checkpoint.local_dir, "/checkpoint/local_dir", base);
    throw_problems();
    if (!given("/optimizer/weight_decay")) {
      config_.optimizer.weight_decay = config_.optimizer.type == OptimizerConfig::Type::kAdamw ? 0.01 : 0.0;
    }
    return config_;
  }

 private:
  enum class Part { kKey, kValue };

  struct Origin {
    std::size_t index = 0;
    std::string text;
  };

  // Adds a problem at the place of that pointer, or of the nearest enclosing value.
  void add(std::string pointer, Part part, const std::string& message, ConfigProblems::Hint hint = {}) {
    for (;; part = Part::kKey) {
      if (const auto origin = origins_.find(pointer); origin != origins_.end()) {
        return problems_.add_override(origin->second.index, origin->second.text, message, std::move(hint));
      }
      if (const auto place = json_.places.find(pointer); place != json_.places.end()) {
        return problems_.add_at(part == Part::kKey ? place->second.key : place->second.value, message, std::move(hint));
      }
      pointer.resize(pointer.rfind('/'));  // the loop ends at the root, which has a place
    }
  }

  void throw_problems() {
    if (!problems_.empty()) problems_.throw_all();
  }

  bool given(const std::string& pointer) const { return json_.root.contains(Json::json_pointer(pointer)); }

  // ---- overrides ----

  void apply_override(const std::string& text, std::size_t index) {
    const Origin origin{index, text};
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return problems_.add_override(index, text, "expected key.path=value, like optimizer.lr=0.01");
    }
    if (!is_utf8(text)) return problems_.add_override(index, "...", "expected UTF-8");
    const std::string path = text.substr(0, equals);
    Json* at = &json_.root;
    std::string pointer;
    std::istringstream names(path + ".");
    std::vector<std::string> steps;
    for (std::string step; std::getline(names, step, '.');) steps.push_back(step);
    for (const std::string& step : steps) {
      if (step.empty()) return problems_.add_override(index, text, "expected names between dots, found '" + path + "'");
      if (!at->is_object())
        return problems_.add_override(index, text, "there is no key under " + pointer + ", which is " + shown(*at));
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

  // Removes the places and origins of a value that an override replaces.
  void forget(const std::string& pointer) {
    const auto inside = [&](const auto& entry) { return entry.first == pointer || entry.first.starts_with(pointer + "/"); };
    std::erase_if(json_.places, inside);
    std::erase_if(origins_, inside);
  }

  // An override of a section's type replaces the type together with the keys that only the old type has: people expect that.
  // Keys from other overrides are never dropped, and mistakes that the file had before stay mistakes.
  void drop_keys_of_replaced_types(const Json& before, std::vector<std::string>* notes) {
    for (const Key& type : config_keys()) {
      const Json::json_pointer pointer(type.pointer());
      if (type.name != "type" || !origins_.contains(type.pointer()) || !given(type.pointer())) continue;
      const Json& now = json_.root.at(pointer);
      const Json old = before.contains(pointer) ? before.at(pointer) : type.get(TrainConfig{});
      if (!accepts(type.kind, now) || !old.is_string() || old == now) continue;
      std::string dropped;
      for (const Key& key : config_keys()) {
        const auto is_of = [&](const Json& name) {
          return std::find(key.of_types.begin(), key.of_types.end(), name.get_ref<const std::string&>()) != key.of_types.end();
        };
        if (key.section != type.section || !given(key.pointer()) || origins_.contains(key.pointer())) continue;
        if (!is_of(old) || is_of(now)) continue;
        json_.root.at(Json::json_pointer(pointer.parent_pointer())).erase(key.name);
        dropped += (dropped.empty() ? "" : ", ") + key.dotted();
      }
      if (dropped.empty() || notes == nullptr) continue;
      notes->push_back(type.dotted() + "=" + now.get<std::string>() + " leaves out what the file says for " + shown(old) +
                       ": " + dropped);
    }
  }

  static Json override_value(const std::string& path, const std::string& text) {
    const Key* const key = find_key(path);
    const bool wants_text = key != nullptr && std::holds_alternative<TextKind>(key->kind);  // name=2024
    try {
      Json value = Json::parse(text);
      if (!wants_text || value.is_string()) return value;
    } catch (const Json::out_of_range&) {  // 1e999 is a number too, but no key accepts it
      if (!wants_text) return std::numeric_limits<double>::infinity();
    } catch (const Json::exception&) {
    }
    return text;
  }

  // ---- keys ----

  void read_section(const std::string& section, const Json& object) {
    for (const auto& [name, value] : object.items()) {
      const std::string dotted = joined(section, name);
      const std::string pointer = pointer_of(section, name);
      const Key* const key = name.find('.') == std::string::npos ? find_key(dotted) : nullptr;
      if (key != nullptr) {
        read_value(*key, pointer, value);
      } else if (!name.empty() && name.find('.') == std::string::npos && is_section(dotted)) {
        if (value.is_object()) {
          read_section(dotted, value);
        } else {
          failed_.insert(pointer);
          add(pointer, Part::kValue, "expected an object in braces, found " + found(pointer, value) + " (" + pointer + ")");
        }
      } else if (pointer != "/$schema") {
        std::string message = "unknown key '";
        message.append(name).append("' (").append(pointer).append(").");
        add(pointer, Part::kKey, message, [section, name = name] { return suggestion(section, name); });
      }
    }
  }

  static std::string pointer_of(const std::string& section, const std::string& name) {
    std::string parent = section.empty() ? "" : "/" + section;
    std::replace(parent.begin(), parent.end(), '.', '/');
    return pointer_to(parent, name);
  }

  // The value as it was written, when its parsed form says less: 99999999999999999999999, 1e-400.
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
    if (zero) out += ", which is too close to 0 to be told from it";
    if (std::isinf(value.get<double>())) out += ", which is too large: numbers end at about 1.8e308";
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
    std::string message = "expected " + (has_zero ? "a string without a zero character, \\u0000" : expectation(key.kind)) +
                          ", found " + type + found(pointer, value) + " (" + pointer + ")";
    if (const auto* names = std::get_if<NameKind>(&key.kind); names != nullptr && value.is_string()) {
      const std::string hint = did_you_mean(value.get_ref<const std::string&>(), names->names);
      if (!hint.empty()) message += "." + hint;
    }
    add(pointer, Part::kValue, message);
  }

  void check_presence() {
    for (const Key& key : config_keys()) {
      if (!key.required || given(key.pointer())) continue;
      const std::string section = "/" + key.section;
      if (failed_.contains(section)) continue;
      add(section, Part::kKey, "key '" + key.dotted() + "' is missing: " + key.doc + " (" + key.pointer() + ")");
    }
  }

  // ---- rules between keys ----

  // A key that the section's type doesn't have would silently do nothing.
  void check_types() {
    for (const Key& key : config_keys()) {
      if (key.of_types.empty() || !given(key.pointer()) || applies(key, config_)) continue;
      const Key& type = *find_key(key.section + ".type");
      if (failed_.contains(type.pointer())) continue;
      std::string types;
      for (const std::string_view name : key.of_types) types += (types.empty() ? "" : " or ") + shown(std::string(name));
      add(key.pointer(), Part::kKey,
          "key '" + key.name + "' is for " + key.section + " type " + types + " only, found type " + shown(type.get(config_)) +
              (given(type.pointer()) ? "" : " (the default)") + " (" + key.pointer() + ")");
    }
  }

  bool all_good(std::initializer_list<const char*> pointers) const {
    return std::none_of(pointers.begin(), pointers.end(), [&](const char* pointer) { return failed_.contains(pointer); });
  }

  void check_rules() {
    const TrainConfig& c = config_;
    if (c.micro_batch_size > c.batch_size && all_good({"/micro_batch_size", "/batch_size"})) {
      add("/micro_batch_size", Part::kValue,
          "expected at most batch_size, which is " + std::to_string(c.batch_size) + ", found " +
              std::to_string(c.micro_batch_size) + " (/micro_batch_size)");
    }
    if (c.optimizer.nesterov && c.optimizer.momentum == 0 &&
        all_good({"/optimizer/type", "/optimizer/momentum", "/optimizer/nesterov"}) &&
        c.optimizer.type == OptimizerConfig::Type::kSgd) {
      add("/optimizer/nesterov", Part::kValue, "nesterov needs a momentum above 0, found 0 (/optimizer/nesterov)");
    }
    for (const char* interval : {"/checkpoint/every_steps", "/checkpoint/every_seconds"}) {
      const bool set =
          std::string_view(interval).ends_with("steps") ? c.checkpoint.every_steps != 0 : c.checkpoint.every_seconds != 0;
      if (c.checkpoint.every != CheckpointConfig::Every::kAuto || !set || !all_good({"/checkpoint/every", interval})) continue;
      add(interval, Part::kValue,
          "expected 0 or nothing beside \"every\": \"auto\", which chooses the time by itself (" + std::string(interval) + ")");
    }
    if (const std::string& local = c.checkpoint.local_dir; !local.empty() && local.front() != '/') {
      add("/checkpoint/local_dir", Part::kValue,
          "expected an absolute path, since it names a folder on each node's own disk, found " + shown(local) +
              " (/checkpoint/local_dir)");
    }
    if (c.data.mean.has_value() != c.data.std.has_value() && all_good({"/data/mean", "/data/std"})) {
      const std::string found = c.data.mean ? "mean" : "std", missing = c.data.mean ? "std" : "mean";
      add("/data/" + found, Part::kKey,
          "expected '" + missing + "' as well as '" + found + "', or neither (/data/" + found + ")");
    }
    check_best();
    check_figures();
    if (c.schedule.type == ScheduleConfig::Type::kOneCycle && c.schedule.warmup_steps != 0 &&
        all_good({"/schedule/type", "/schedule/warmup_steps"})) {
      add("/schedule/warmup_steps", Part::kValue,
          "expected 0 or nothing beside \"one_cycle\", which rises by itself: see pct_start (/schedule/warmup_steps)");
    }
    check_exported_models();
  }

  void check_best() {
    const CheckpointConfig& c = config_.checkpoint;
    const bool known = c.best_by.ends_with("accuracy") || c.best_by.ends_with("loss");
    if (known || c.best_is != CheckpointConfig::BestIs::kAuto || !all_good({"/checkpoint/best_by", "/checkpoint/best_is"}))
      return;
    add("/checkpoint/best_by", Part::kValue,
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
      add(pointer, Part::kValue,
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
      add(pointer, Part::kValue,
          std::string(
              "expected evaluations during the run, which this goes by: set eval_every_epochs or eval_every_steps above "
              "0 (") +
              pointer + ")");
    }
  }

  // The config can't repeat what an exported model fixes, and the built-in models take pictures only.
  void check_exported_models() {
    const TrainConfig& c = config_;
    if (!all_good({"/model/type", "/data/type"})) return;
    if (c.data.type == DataConfig::Type::kTensors && (c.data.augment.crop_padding != 0 || c.data.augment.flip) &&
        all_good({"/data/augment/crop_padding", "/data/augment/flip"})) {
      add("/data/augment", Part::kKey, "only pictures can be augmented, found \"tensors\" for data.type (/data/augment)");
    }
    if (c.model.type != ModelConfig::Type::kExported) {
      if (c.data.type == DataConfig::Type::kIdx) return;
      add("/data/type", Part::kValue,
          "expected \"idx\" beside a model of type " + shown(find_key("model.type")->get(c)) +
              ", which takes pictures; \"tensors\" are for \"exported\" models (/data/type)");
      return;
    }
    if (c.model.path.empty() && all_good({"/model/path"})) {
      add("/model", Part::kKey, "key 'model.path' is missing: the folder that the exporter wrote (/model/path)");
    }
    const auto refuse = [&](bool set, const char* pointer, const std::string& why) {
      if (set && all_good({pointer})) add(pointer, Part::kValue, why + " (" + pointer + ")");
    };
    refuse(c.label_smoothing != 0, "/label_smoothing",
           "expected 0 or nothing beside an exported model, whose loss is part of it: export it with label smoothing");
    refuse(c.precision == TrainConfig::Precision::kBf16, "/precision",
           "expected \"fp32\" or \"tf32\" beside an exported model, found \"bf16\"");
    refuse(c.channels_last, "/channels_last", "expected false or nothing beside an exported model, whose layout is part of it");
  }

  void make_absolute(std::string& path, const std::string& pointer, const std::filesystem::path& base) {
    if (path.empty()) return;
    path = (base / path).lexically_normal().string();
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    if (!is_utf8(path)) add(pointer, Part::kValue, "the path is not UTF-8, which JSON can't hold (" + pointer + ")");
  }

  std::string_view text_;
  PositionedJson json_;
  std::map<std::string, Origin> origins_;  // values from overrides, by JSON pointer
  std::set<std::string> failed_;           // pointers of wrong values, so that nothing is concluded from their defaults
  ConfigProblems problems_;
  TrainConfig config_;
};

}  // namespace

TrainConfig parse_config(std::string_view text, const std::string& name, const std::filesystem::path& base,
                         const std::vector<std::string>& overrides, std::vector<std::string>* notes) {
  return ConfigReader(text, name).read(std::filesystem::absolute(base), overrides, notes);
}

TrainConfig load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                        std::vector<std::string>* notes) {
  const std::string text = read_config_text(file, "config");
  return parse_config(text, file.string(), std::filesystem::absolute(file).parent_path(), overrides, notes);
}

}  // namespace ddprun
