#include "common/bounded/bounded_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/error.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/resource_errors.hpp"

namespace ddprun {
namespace {

[[noreturn]] void refuse(int error, const std::string& problem) {
  const std::string text = problem + ": " + std::strerror(error);
  throw_if_resources_exhausted(error, text);
  throw UsageError(text);
}

}  // namespace

std::string read_bounded(const std::filesystem::path& file, std::size_t max_bytes, std::string_view what) {
  const std::string name = file.string();
  const auto too_long = [&](const std::string& bytes) {
    return UsageError(name + ": has " + bytes + " bytes; the maximum for " + std::string(what) + " is " +
                      std::to_string(max_bytes));
  };
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (opened.get() < 0) refuse(errno, name + " cannot be read");
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0) refuse(errno, name + " cannot be read");
  if (!S_ISREG(status.st_mode)) throw UsageError(name + " is not a regular file");
  const auto size = static_cast<std::size_t>(std::max<off_t>(status.st_size, 0));
  if (size > max_bytes) throw too_long(std::to_string(size));
  // The buffer may be one byte larger than the limit, so this function detects a file over the limit even if its reported size
  // is too small. The reported size can be too small, because a file may grow while it is read, and files in /proc report size
  // 0.
  std::string text(size + 1, '\0');
  std::size_t filled = 0;
  while (true) {
    const ssize_t got = ::read(opened.get(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(errno, name + " cannot be read");
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
    if (filled > max_bytes) throw too_long("more than " + std::to_string(max_bytes));
    if (filled == text.size()) text.resize(std::min(2 * text.size(), max_bytes + 1));
  }
  text.resize(filled);
  return text;
}

}  // namespace ddprun
