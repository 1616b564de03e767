// Implementation of bounded_file.hpp.
#include "common/bounded/bounded_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/error.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/refused_file.hpp"

namespace ddprun {
namespace {

[[noreturn]] void refuse(int error, const std::string& problem) {
  const std::string text = problem + ": " + std::strerror(error);
  throw_if_machine_lacks(error, text);
  throw UsageError(text);
}

}  // namespace

std::string read_bounded(const std::filesystem::path& file, std::size_t most, std::string_view what) {
  const std::string name = file.string();
  const auto too_long = [&](const std::string& bytes) {
    return UsageError(name + ": has " + bytes + " bytes; " + std::string(what) + " has at most " + std::to_string(most));
  };
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (opened.get() < 0) refuse(errno, name + " cannot be read");
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0) refuse(errno, name + " cannot be read");
  if (!S_ISREG(status.st_mode)) throw UsageError(name + " is not a regular file");
  const auto size = static_cast<std::size_t>(std::max<off_t>(status.st_size, 0));
  if (size > most) throw too_long(std::to_string(size));
  // The buffer has one byte more than the limit. This detects a file that grows while it is read, and one in /proc, whose size
  // is 0.
  std::string text(size + 1, '\0');
  std::size_t filled = 0;
  while (true) {
    const ssize_t got = ::read(opened.get(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(errno, name + " cannot be read");
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
    if (filled > most) throw too_long("more than " + std::to_string(most));
    if (filled == text.size()) text.resize(std::min(2 * text.size(), most + 1));
  }
  text.resize(filled);
  return text;
}

}  // namespace ddprun
