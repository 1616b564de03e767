#include "launcher/events/error_file.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "common/base/numbers.hpp"
#include "common/base/rounding.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxMessageBytes = 4 << 10;
constexpr std::size_t kMaxStackBytes = 64 << 10;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kLastSecond = 9'000'000'000;  // upper limit, so that the time in nanoseconds fits into 64 bits

const Json& member_of(const Json& object, const char* key) {
  static const Json nothing;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : nothing;
}

// Returns the end of the text, because the newest calls of a call stack come last.
std::string last_part(const std::string& text, std::size_t bytes) {
  return text.size() <= bytes ? text : "..." + text.substr(text.size() - bytes);
}

// Reads the timestamp: seconds as a number or a string, with or without a fraction.
void take_timestamp(const Json& value, ErrorFile& file) {
  double seconds = -1;
  if (value.is_number()) {
    seconds = value.get<double>();
  } else if (value.is_string()) {
    const auto number = leading_decimal(value.get_ref<const std::string&>());
    if (!number) return;
    seconds = number->value;
  }
  if (!(seconds >= 0) || seconds >= static_cast<double>(kLastSecond)) return;
  const auto whole = static_cast<std::int64_t>(seconds);
  file.whole_seconds = static_cast<double>(whole) == seconds;
  file.timestamp_ns = whole * kSecond + round_to_nearest((seconds - static_cast<double>(whole)) * 1e9);
}

}  // namespace

std::optional<ErrorFile> parse_error_file(std::string_view content) {
  const Json json = Json::parse(content, nullptr, false);
  const Json& message = member_of(json, "message");
  ErrorFile file;
  if (message.is_object()) {
    const Json& inner = member_of(message, "message");
    if (!inner.is_string()) return std::nullopt;
    file.message = inner.get<std::string>().substr(0, kMaxMessageBytes);
    const Json& extra = member_of(message, "extraInfo");
    if (member_of(extra, "py_callstack").is_string()) {
      file.call_stack = last_part(member_of(extra, "py_callstack").get<std::string>(), kMaxStackBytes);
    }
    take_timestamp(member_of(extra, "timestamp"), file);
  } else if (message.is_string()) {
    file.message = message.get<std::string>().substr(0, kMaxMessageBytes);
    take_timestamp(member_of(json, "timestamp"), file);
  } else {
    return std::nullopt;
  }
  return file;
}

std::int64_t time_of_failure(const ErrorFile& file, std::int64_t ended_ns) {
  if (!file.timestamp_ns) return ended_ns;
  std::int64_t time = *file.timestamp_ns;
  if (file.whole_seconds) time = std::clamp(file.written_ns, time, time + kSecond - 1);
  return std::min(time, ended_ns);
}

}  // namespace ddprun
