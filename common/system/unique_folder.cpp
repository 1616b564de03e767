#include "common/system/unique_folder.hpp"

#include <stdlib.h>

#include <cerrno>
#include <cstring>

#include "common/base/error.hpp"

namespace ddprun {

std::optional<std::filesystem::path> make_unique_folder(const std::filesystem::path& parent, const std::string& prefix) {
  std::string name = (parent / (prefix + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) return std::nullopt;
  return name;
}

std::filesystem::path make_temporary_folder(const std::string& prefix) {
  const std::filesystem::path parent = std::filesystem::temp_directory_path();
  if (auto folder = make_unique_folder(parent, prefix)) return *std::move(folder);
  throw UsageError("cannot create a temporary folder in " + parent.string() + ": " + std::strerror(errno) +
                   "; set TMPDIR to another folder");
}

}  // namespace ddprun
