// Implementation of error_file.hpp.
#include "launcher/error_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <ctime>

#include <nlohmann/json.hpp>

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxBytes = 1 << 20;
constexpr std::size_t kMaxMessageBytes = 4 << 10;
constexpr std::size_t kMaxStackBytes = 64 << 10;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kLastSecond = 9'000'000'000;  // of a time that fits into nanoseconds

const Json& member_of(const Json& object, const char* key) {
  static const Json nothing;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : nothing;
}

// A stack's newest calls are its last lines.
std::string last_part(const std::string& text, std::size_t bytes) {
  return text.size() <= bytes ? text : "..." + text.substr(text.size() - bytes);
}

// Seconds as a number or a text, with a fraction or without.
void take_timestamp(const Json& value, ErrorFile& file) {
  double seconds = -1;
  if (value.is_number()) {
    seconds = value.get<double>();
  } else if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (std::from_chars(text.data(), text.data() + text.size(), seconds).ec != std::errc{}) return;
  }
  if (!(seconds >= 0) || seconds >= static_cast<double>(kLastSecond)) return;
  const double whole = std::floor(seconds);
  file.whole_seconds = whole == seconds;
  file.timestamp_ns = static_cast<std::int64_t>(whole) * kSecond + std::llround((seconds - whole) * 1e9);
}

// Non-blocking: the worker may have made it anything, a pipe for one.
std::optional<std::string> read_some(const std::filesystem::path& file, timespec* written = nullptr) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  struct stat info {};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size <= static_cast<off_t>(kMaxBytes);
  std::string content(regular ? static_cast<std::size_t>(info.st_size) : 0, '\0');
  std::size_t size = 0;
  while (size < content.size()) {
    const ssize_t n = ::read(fd, content.data() + size, content.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    size += static_cast<std::size_t>(n);
  }
  ::close(fd);
  if (!regular) return std::nullopt;
  content.resize(size);
  if (written != nullptr) *written = info.st_mtim;
  return content;
}

std::int64_t nanoseconds(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * kSecond + time.tv_nsec;
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

std::optional<ErrorFile> read_error_file(const std::filesystem::path& path) {
  timespec written{};
  const auto content = read_some(path, &written);
  if (!content) return std::nullopt;
  auto file = parse_error_file(*content);
  if (!file) return std::nullopt;
  file->path = path;
  // File systems take the time from a clock that is up to a tick behind.
  timespec tick{};
  ::clock_getres(CLOCK_REALTIME_COARSE, &tick);
  file->written_ns = nanoseconds(written) + nanoseconds(tick);
  return file;
}

std::int64_t time_of_failure(const ErrorFile& file, std::int64_t ended_ns) {
  if (!file.timestamp_ns) return ended_ns;
  std::int64_t time = *file.timestamp_ns;
  if (file.whole_seconds) time = std::clamp(file.written_ns, time, time + kSecond - 1);
  return std::min(time, ended_ns);
}

bool copy_error_file(const std::filesystem::path& from, const std::filesystem::path& to, int exit_code) {
  const auto content = read_some(from);
  if (!content) return false;
  Json json = Json::parse(*content, nullptr, false);
  if (!json.is_object()) return false;
  if (exit_code != 0 && member_of(json, "message").is_object()) json["message"]["errorCode"] = exit_code;
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  const int fd = ::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) return false;
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  return ::close(fd) == 0 && done == text.size();
}

}  // namespace ddprun
