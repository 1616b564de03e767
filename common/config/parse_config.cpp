// Converts text to values: syntax, then overrides, then each key by the table of keys.hpp, then the rules between keys. Every
// step adds to one list of problems, so that all errors of a file are reported together.
#include "common/config/parse_config.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <system_error>

#include "common/base/error.hpp"
#include "common/base/suggest.hpp"
#include "common/config/config_problems.hpp"
#include "common/config/json_positions.hpp"
#include "common/config/keys.hpp"
#include "common/config/parameter_groups.hpp"
#include "common/config/read_config_text.hpp"
#include "common/config/rules.hpp"
#include "common/other_words/other_words.hpp"

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

std::string joined(const std::string& section, const std::string& name) {
  return section.empty() ? name : section + "." + name;
}

// The keys and sections that a config may have: the built-in ones, and those of the worker program.
class KnownNames {
 public:
  explicit KnownNames(const TaskConfig& task) : keys_(keys_with(task)), sections_(sections_with(task)) {}

  const std::vector<Key>& keys() const { return keys_; }

  const Key* find(std::string_view dotted) const {
    const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const Key& key) { return key.dotted() == dotted; });
    return found == keys_.end() ? nullptr : &*found;
  }

  bool is_section(std::string_view dotted) const {
    return std::any_of(sections_.begin(), sections_.end(), [&](const Section& s) { return s.name == dotted; });
  }

  // Suggests the right place for a misplaced key ("lr" at the top), and otherwise the nearest name of the section.
  std::string suggestion(const std::string& section, const std::string& name) const {
    if (const std::size_t dot = name.find('.'); dot != std::string::npos && find(joined(section, name)) != nullptr) {
      return " Write it as \"" + name.substr(0, dot) + "\": {\"" + name.substr(dot + 1) + "\": ...}.";
    }
    if (section.empty() && name == kTaskSection) {
      return R"( Only a program of your own has such keys: "worker" or --worker names it, and its --describe lists them.)";
    }
    std::vector<std::string> elsewhere;
    for (const Key& key : keys_) {
      if (key.name == name) elsewhere.push_back(key.dotted());
    }
    if (elsewhere.size() == 1) return " Did you mean '" + elsewhere.front() + "'?";
    const std::string hint = hint_for_other_key(name);
    return hint.empty() ? did_you_mean(name, names_in(section)) : hint;
  }

 private:
  // The names that a section may contain.
  std::vector<std::string_view> names_in(const std::string& section) const {
    std::vector<std::string_view> out;
    for (const Key& key : keys_) {
      if (key.section == section) out.push_back(key.name);
    }
    for (const Section& child : sections_) {
      const std::size_t dot = child.name.rfind('.');
      const std::string parent = dot == std::string::npos ? "" : child.name.substr(0, dot);
      if (!child.name.empty() && parent == section) out.push_back(std::string_view(child.name).substr(dot + 1));
    }
    return out;
  }

  std::vector<Key> keys_;
  std::vector<Section> sections_;
};

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
    read_section("", json_.root);
    check_presence();
    check_types();
    check_rules();
    make_paths_absolute(base);
    throw_problems();
    if (!given("/optimizer/weight_decay")) {
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

  // ---- the worker program's keys ----

  void adopt(TaskConfig task) {
    config_.task = std::move(task);
    known_ = KnownNames(config_.task);
  }

  // The worker that the config will name. It is needed first, since the overrides cannot be read without its keys. An invalid
  // value is reported later, with the other errors.
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

  // An override of a section's type also drops the keys that only the old type has, as users expect. Keys from other overrides
  // are never dropped, and errors that the file had before stay errors.
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

  Json override_value(const std::string& path, const std::string& text) const {
    const Key* const key = known_.find(path);
    const bool wants_text = key != nullptr && std::holds_alternative<TextKind>(key->kind);  // name=2024
    try {
      Json value = Json::parse(text);
      if (!wants_text || value.is_string()) return value;
    } catch (const Json::out_of_range&) {  // 1e999 is also a number, but no key accepts it
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

  // The value as written, if its parsed form shows less: 99999999999999999999999, 1e-400.
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
    for (const Key& key : known_.keys()) {
      if (!key.required || given(key.pointer()) || !applies(key, config_)) continue;
      const std::string section = "/" + key.section;
      if (failed_.contains(section) || (!key.of_types.empty() && failed_.contains(section + "/type"))) continue;
      add(section, Part::kKey, "key '" + key.dotted() + "' is missing: " + key.doc + " (" + key.pointer() + ")");
    }
  }

  // ---- rules between keys ----

  // A key that the section's type doesn't have would be ignored silently.
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

  void check_rules() {
    for (const BrokenRule& rule : broken_rules(config_, failed_)) {
      add(rule.pointer, rule.of_key ? Part::kKey : Part::kValue, rule.message);
    }
  }

  static std::string absolute_path(const std::string& path, const std::filesystem::path& base) {
    std::string out = (base / path).lexically_normal().string();
    while (out.size() > 1 && out.back() == '/') out.pop_back();
    return out;
  }

  static bool is_for_a_shell(const std::string& path) { return path == "~" || path.starts_with("~/") || path.starts_with('$'); }

  void make_paths_absolute(const std::filesystem::path& base) {
    for (const Key& key : known_.keys()) {
      const auto* const kind = std::get_if<TextKind>(&key.kind);
      const std::string path = kind != nullptr && kind->path ? key.get(config_).get<std::string>() : "";
      if (path.empty()) continue;
      const std::string absolute = absolute_path(path, base);
      std::error_code ignored;
      if (is_for_a_shell(path) && !std::filesystem::exists(absolute, ignored)) {
        add(key.pointer(), Part::kValue,
            "a path is taken as it is written, and a shell would replace '~' and '$NAME': expected the whole path, found \"" +
                path + "\" (" + key.pointer() + ")");
      } else if (!is_utf8(absolute)) {
        add(key.pointer(), Part::kValue, "the path is not UTF-8, which JSON can't hold (" + key.pointer() + ")");
      } else {
        key.set(config_, absolute);
      }
    }
  }

  std::string_view text_;
  PositionedJson json_;
  std::map<std::string, Origin> origins_;  // values from overrides, by JSON pointer
  std::set<std::string> failed_;           // pointers of wrong values: their defaults must not trigger further errors
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
