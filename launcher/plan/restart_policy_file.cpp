// Implementation of restart_policy_file.hpp. For each JSON object of the file a table lists the allowed keys. read_object()
// reads an object with its table.
#include "launcher/plan/restart_policy_file.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/rounding.hpp"
#include "common/base/suggest.hpp"
#include "common/config/json_positions.hpp"
#include "common/config/read_config_text.hpp"

namespace ddprun {
namespace {

using RulesJson = nlohmann::json;

constexpr std::int64_t kMaxRestarts = 1'000'000;
constexpr double kMaxPauseSeconds = 1e6;

class PolicyReader {
 public:
  PolicyReader(std::string_view text, const std::string& name) : text_(text), name_(name), json_(parse_with_positions(text)) {
    for (const JsonProblem& problem : json_.problems) add_at(problem.offset, problem.message + problem.hint(text_));
  }

  RestartPolicyFile read() {
    if (json_.complete) read_object("", json_.root, top_keys());
    if (file_.refill_by_progress && !file_.max_restarts)
      add("/refill_by_progress",
          "expected max_restarts in the same file, since refill_by_progress restores this number of restarts");
    if (problems_.empty()) return file_;
    std::string message = problems_.front();
    if (problems_.size() > 1) {
      message = std::to_string(problems_.size()) + " errors in the restart policy:";
      for (const std::string& problem : problems_) message += "\n  " + problem;
    }
    throw UsageError(message);
  }

 private:
  struct PolicyKey {
    std::string name;
    std::string expected;
    // Stores the value. Returns false if it is not valid.
    std::function<bool(const std::string& pointer, const RulesJson& value)> take;
  };
  using Keys = std::vector<PolicyKey>;

  Keys top_keys() {
    return {{"max_restarts", "a whole number from 0",
             [this](const std::string&, const RulesJson& value) {
               const auto number = whole(value);
               if (number) file_.max_restarts = *number;
               return number.has_value();
             }},
            {"refill_by_progress", "true or false",
             [this](const std::string&, const RulesJson& value) {
               if (value.is_boolean()) file_.refill_by_progress = value.get<bool>();
               return value.is_boolean();
             }},
            {"same_failure_rounds", "a whole number, 0 (no limit) or 2 to " + std::to_string(kMaxSameFailures),
             [this](const std::string&, const RulesJson& value) {
               const auto number = whole(value);
               if (!number || *number == 1 || *number > kMaxSameFailures) return false;
               file_.rules.same_failure_rounds = *number;
               return true;
             }},
            {"pause", "an object in braces",
             [this](const std::string& pointer, const RulesJson& value) {
               return value.is_object() && (read_object(pointer, value, pause_keys()), true);
             }},
            {"causes", "an object in braces", [this](const std::string& pointer, const RulesJson& value) {
               return value.is_object() && (read_object(pointer, value, cause_keys()), true);
             }}};
  }

  Keys pause_keys() {
    const auto seconds_into = [](std::chrono::milliseconds& target) {
      return [&target](const std::string&, const RulesJson& value) {
        if (!value.is_number()) return false;
        const double seconds = value.get<double>();
        if (!(seconds >= 0) || seconds > kMaxPauseSeconds) return false;
        target = std::chrono::milliseconds(round_to_nearest(seconds * 1000));
        return true;
      };
    };
    const char* expected = "seconds from 0";
    return {{"instant_s", expected, seconds_into(file_.rules.instant)},
            {"first_s", expected, seconds_into(file_.rules.first_pause)},
            {"longest_s", expected, seconds_into(file_.rules.longest_pause)}};
  }

  Keys cause_keys() {
    Keys keys;
    for (std::size_t i = 0; i < kCauses; ++i) {
      const auto cause = static_cast<Cause>(i);
      if (!may_be_restarted(cause)) continue;
      keys.push_back({name_of(cause), "the number of restarts allowed for that cause, a whole number from 0",
                      [this, i](const std::string&, const RulesJson& value) {
                        const auto number = whole(value);
                        if (number) file_.rules.of_cause[i] = *number;
                        return number.has_value();
                      }});
    }
    return keys;
  }

  void read_object(const std::string& parent, const RulesJson& object, const Keys& keys) {
    if (!object.is_object()) return add(parent, "expected an object in braces, found " + object.dump());
    std::vector<std::string_view> names;
    for (const PolicyKey& key : keys) names.push_back(key.name);
    for (const auto& entry : object.items()) {
      const std::string& name = entry.key();
      const RulesJson& value = entry.value();
      const std::string pointer = pointer_to(parent, name);
      const auto key = std::find_if(keys.begin(), keys.end(), [&](const PolicyKey& k) { return k.name == name; });
      if (key == keys.end()) {
        const bool never = parent == "/causes" && is_cause(name);
        std::string message = never ? "failures of cause '" : "unknown key '";
        message.append(name).append(never ? "' are never restarted (" : "' (").append(pointer).append(never ? ")" : ").");
        if (!never) message += did_you_mean(name, names);
        add(pointer, message, &JsonPlace::key);
      } else if (!key->take(pointer, value)) {
        add(pointer, "expected " + key->expected + ", found " +
                         value.dump(-1, ' ', false, RulesJson::error_handler_t::replace).substr(0, 60) + " (" + pointer + ")");
      }
    }
  }

  static bool is_cause(const std::string& name) {
    for (std::size_t i = 0; i < kCauses; ++i)
      if (name == name_of(static_cast<Cause>(i))) return true;
    return false;
  }

  static std::optional<int> whole(const RulesJson& value) {
    if (!value.is_number_integer()) return std::nullopt;
    const auto number = value.get<std::int64_t>();
    if (number < 0 || number > kMaxRestarts) return std::nullopt;
    return static_cast<int>(number);
  }

  void add(const std::string& pointer, const std::string& message, std::size_t JsonPlace::*part = &JsonPlace::value) {
    const auto place = json_.places.find(pointer);
    add_at(place != json_.places.end() ? place->second.*part : 0, message);
  }
  void add_at(std::size_t offset, const std::string& message) {
    problems_.push_back(name_ + ":" + line_and_column(text_, offset) + ": " + message);
  }

  std::string_view text_;
  std::string name_;
  PositionedJson json_;
  RestartPolicyFile file_;
  std::vector<std::string> problems_;
};

}  // namespace

RestartPolicyFile parse_restart_policy(std::string_view text, const std::string& name) {
  return PolicyReader(text, name).read();
}

RestartPolicyFile load_restart_policy(const std::filesystem::path& file) {
  std::string text = read_config_text(file, "restart policy");
  RestartPolicyFile read = parse_restart_policy(text, file.string());
  read.text = std::move(text);
  return read;
}

}  // namespace ddprun
