#include "common/config/read_config_text.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = 4u << 20;
constexpr int kPatienceMs = 5000;  // maximum time to wait for the writer of a named pipe

bool is_pipe(const fs::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
}

[[noreturn]] void cannot_read(const fs::path& file, const std::string& kind) {
  throw UsageError("cannot read " + kind + " " + file.string() + ": " + std::strerror(errno));
}

struct PipeEnd {
  int fd;
  ~PipeEnd() { ::close(fd); }
};

// Reads a named pipe. A blocking open(2) would wait for a writer without a limit. So this function opens with O_NONBLOCK and
// limits the wait for the first data. Later reads have no limit, because then the writer exists, and it may be a slow shell
// command: <(command).
std::string read_pipe(const fs::path& file, const std::string& kind) {
  const PipeEnd pipe{::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (pipe.fd < 0) cannot_read(file, kind);
  std::string text(kMaxConfigBytes + 1, '\0');
  pollfd readable{pipe.fd, POLLIN, 0};
  const bool timed_out = ::poll(&readable, 1, kPatienceMs) == 0;
  if (timed_out && ::read(pipe.fd, text.data(), 1) == 0) {
    throw UsageError(file.string() + " is a named pipe without a writer (waited for " + std::to_string(kPatienceMs / 1000) +
                     " s): use a regular " + kind + " file, or start the writer first");
  }
  ::fcntl(pipe.fd, F_SETFL, 0);  // from here on, reads block until data arrives or the writer closes the pipe
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(pipe.fd, text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) cannot_read(file, kind);
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  text.resize(size);
  return text;
}

std::string read_file(const fs::path& file, const std::string& kind) {
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) cannot_read(file, kind);
  std::string text(kMaxConfigBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) cannot_read(file, kind);
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace

std::string read_config_text(const fs::path& file, const std::string& kind) {
  std::error_code error;
  if (fs::is_directory(file, error)) throw UsageError(file.string() + " is a folder, expected a " + kind + " file");
  std::string text = is_pipe(file) ? read_pipe(file, kind) : read_file(file, kind);
  if (text.size() > kMaxConfigBytes) {
    throw UsageError(kind + " " + file.string() + " is larger than " + std::to_string(kMaxConfigBytes >> 20) +
                     " MiB, the maximum for a " + kind + " file: check the path");
  }
  return text;
}

}  // namespace ddprun
