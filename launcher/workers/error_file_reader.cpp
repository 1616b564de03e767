#include "launcher/workers/error_file_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <string>

#include <nlohmann/json.hpp>

#include "common/shared_folder/others_link.hpp"
#include "common/system/write_all.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxBytes = 1 << 20;

// Reads the file, up to a limit. O_NONBLOCK is needed because the worker may have created a pipe at this path, and opening a
// pipe could block.
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
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

std::optional<ErrorFile> read_error_file(const std::filesystem::path& path) {
  timespec written{};
  const auto content = read_some(path, &written);
  if (!content) return std::nullopt;
  auto file = parse_error_file(*content);
  if (!file) return std::nullopt;
  file->path = path;
  // The kernel takes file timestamps from a coarse clock, which may be one tick behind. Adding a tick gives an upper bound.
  timespec tick{};
  ::clock_getres(CLOCK_REALTIME_COARSE, &tick);
  file->written_ns = nanoseconds(written) + nanoseconds(tick);
  return file;
}

bool copy_error_file(const std::filesystem::path& from, const std::filesystem::path& to, int exit_code) {
  const auto content = read_some(from);
  if (!content) return false;
  Json json = Json::parse(*content, nullptr, false);
  if (!json.is_object()) return false;
  if (exit_code != 0 && json.contains("message") && json["message"].is_object()) json["message"]["errorCode"] = exit_code;
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  const int fd = open_unless_others_link(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) return false;
  const bool written = write_all(fd, text) == 0;
  return ::close(fd) == 0 && written;
}

}  // namespace ddprun
