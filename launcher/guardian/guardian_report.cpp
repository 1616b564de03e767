// Implementation of guardian_report.hpp. It parses the report, adds the field "exit" and replaces the file atomically.
#include "launcher/guardian/guardian_report.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "common/system/atomic_file.hpp"
#include "common/system/descriptor.hpp"

namespace ddprun::guardian {
namespace {

constexpr std::size_t kMaxReportBytes = 64 << 20;  // a larger report is not changed

// Returns the content of the file. Returns an empty text if the file is larger than kMaxReportBytes: the parser then throws,
// and the report stays as it is.
std::string text_of(int fd) {
  std::string text;
  std::array<char, 64 << 10> chunk;
  for (;;) {
    const ssize_t count = ::pread(fd, chunk.data(), chunk.size(), static_cast<off_t>(text.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    if (text.size() > kMaxReportBytes) return {};
    text.append(chunk.data(), static_cast<std::size_t>(count));
  }
}

std::string text_of(const std::filesystem::path& file) {
  const Descriptor in(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return in.get() < 0 ? std::string() : text_of(in.get());
}

}  // namespace

void complete_report(const std::filesystem::path& report, int newest) noexcept {
  if (report.empty()) return;
  try {
    auto content = nlohmann::ordered_json::parse(newest < 0 ? text_of(report) : text_of(newest));
    const auto found = content.find("exit");
    if (!content.is_object() || (found != content.end() && !found->is_null())) return;
    content["exit"] = {{"code", 128 + SIGKILL}, {"why", "the agent was killed"}};
    write_file_atomically(report, content.dump(2) + "\n");
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace ddprun::guardian
