#include "launcher/doctor/libtorch_version.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "common/base/printable.hpp"
#include "common/base/version.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kMaxProgramBytes = 64U << 20;  // larger files are not read; ddptrain has 4 MB

}  // namespace

std::optional<std::string> libtorch_of(const std::filesystem::path& program) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(program, error);
  if (error || size > kMaxProgramBytes) return std::nullopt;
  std::ifstream file(program, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const std::string mark = DDPRUN_LIBTORCH_MARK;
  const std::size_t found = bytes.find(mark);
  if (found == std::string::npos) return std::nullopt;
  const std::size_t begin = found + mark.size();
  const std::size_t end = bytes.find('\0', begin);
  if (end == std::string::npos || end - begin > 40) return std::nullopt;
  return printable(bytes.substr(begin, end - begin));
}

}  // namespace ddprun
