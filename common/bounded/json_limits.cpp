#include "common/bounded/json_limits.hpp"

#include <unordered_set>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/json_problem.hpp"
#include "common/bounded/short_quote.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

// The callbacks of nlohmann's SAX parser. They throw UsageError if a limit is exceeded. parse_error() only stops the scan,
// because the real parser reports syntax errors later.
class LimitScan {
 public:
  explicit LimitScan(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return value(); }
  bool boolean(bool) { return value(); }
  bool number_integer(json::number_integer_t) { return value(); }
  bool number_unsigned(json::number_unsigned_t) { return value(); }
  bool number_float(json::number_float_t, const std::string&) { return value(); }
  bool string(const std::string&) { return value(); }
  bool binary(const json::binary_t&) { return value(); }
  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t, const std::string&, const json::exception&) { return false; }

  bool key(const std::string& key) {
    Open& object = open_.back();
    if (++object.entries > limits_.keys) {
      throw UsageError("has more than " + std::to_string(limits_.keys) + " " + limits_.entries);
    }
    if (limits_.unique_keys && !object.keys.insert(key).second) {
      throw UsageError("has the key '" + short_quote(key) + "' twice");
    }
    return true;
  }

 private:
  struct Open {
    bool object = false;
    std::size_t entries = 0;
    std::unordered_set<std::string> keys{};  // used only if JsonLimits::unique_keys is true
  };

  bool value() {
    if (++values_ > limits_.values) throw UsageError("has more than " + std::to_string(limits_.values) + " values");
    if (!open_.empty() && !open_.back().object && ++open_.back().entries > limits_.elements) {
      throw UsageError("has a list of more than " + std::to_string(limits_.elements) + " elements");
    }
    return true;
  }

  bool open(bool object) {
    value();
    if (open_.size() == limits_.depth) throw UsageError("is nested deeper than " + std::to_string(limits_.depth) + " levels");
    open_.push_back({.object = object});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  std::vector<Open> open_;
  std::size_t values_ = 0;
};

}  // namespace

void require_json_within(std::string_view text, const JsonLimits& limits) {
  LimitScan scan(limits);
  json::sax_parse(text, &scan);
}

json parse_json_within(const std::string& text, const JsonLimits& limits) {
  require_json_within(text, limits);
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw UsageError("is not valid JSON (" + json_problem(error, text) + ")");
  }
}

}  // namespace ddprun
