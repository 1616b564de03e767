// Implementation of read_config_text.hpp.
#include "common/config/read_config_text.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kMaxConfigBytes = 4u << 20;

}  // namespace

std::string read_config_text(const std::filesystem::path& file, const std::string& kind) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    throw UsageError(file.string() + " is a folder, expected a " + kind + " file");
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) throw UsageError("can't read " + kind + " " + file.string() + ": " + std::strerror(errno));
  std::string text(kMaxConfigBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) throw UsageError("can't read " + kind + " " + file.string() + ": " + std::strerror(errno));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMaxConfigBytes) {
    throw UsageError(kind + " " + file.string() + " is larger than " + std::to_string(kMaxConfigBytes >> 20) +
                     " MiB: is it a " + kind + " file?");
  }
  return text;
}

}  // namespace ddprun
