// Implementation of error_file.hpp.
#include "launcher/error_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace ddprun {
namespace {

constexpr std::size_t kMaxBytes = 64 << 10;
constexpr std::size_t kMaxMessageBytes = 4 << 10;

}  // namespace

std::optional<std::string> parse_error_file(std::string_view content) {
  const auto json = nlohmann::json::parse(content, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  auto message = json.find("message");
  if (message == json.end()) return std::nullopt;
  if (message->is_object()) {
    const auto inner = message->find("message");
    if (inner == message->end() || !inner->is_string()) return std::nullopt;
    return inner->get<std::string>().substr(0, kMaxMessageBytes);
  }
  if (!message->is_string()) return std::nullopt;
  return message->get<std::string>().substr(0, kMaxMessageBytes);
}

std::optional<std::string> read_error_file(const std::filesystem::path& file) {
  // Non-blocking: the worker may have made it anything, a pipe for one.
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  std::string content(kMaxBytes + 1, '\0');
  std::size_t size = 0;
  while (size < content.size()) {
    const ssize_t n = ::read(fd, content.data() + size, content.size() - size);
    if (n <= 0) break;
    size += static_cast<std::size_t>(n);
  }
  ::close(fd);
  if (size > kMaxBytes) return std::nullopt;
  return parse_error_file(std::string_view(content).substr(0, size));
}

}  // namespace ddprun
