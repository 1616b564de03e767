#include "common/shared_folder/others_link.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

bool is_trusted(uid_t user) {
  return user == 0 || user == ::geteuid();
}

// Returns true if the folder that contains `path` belongs to this user or root.
bool folder_is_trusted(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  struct stat info {};
  return ::stat(folder.empty() ? "." : folder.c_str(), &info) == 0 && is_trusted(info.st_uid);
}

}  // namespace

bool is_others_link(const std::filesystem::path& path) noexcept {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return false;
  try {
    return !is_trusted(info.st_uid) || !folder_is_trusted(path);
  } catch (...) {  // out of memory: treat the link as untrusted
    return true;
  }
}

int open_unless_others_link(const std::filesystem::path& path, int flags, mode_t mode) noexcept {
  const int fd = ::open(path.c_str(), flags | O_NOFOLLOW, mode);
  if (fd >= 0 || errno != ELOOP || is_others_link(path)) return fd;
  return ::open(path.c_str(), flags, mode);
}

void refuse_others_links(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!is_others_link(entry->path())) continue;
    throw UsageError(
        entry->path().string() +
        " is a symbolic link that another user can change. It is not followed, because ddprun could overwrite your "
        "own files through it: remove the link or choose another --run-dir");
  }
}

}  // namespace ddprun
