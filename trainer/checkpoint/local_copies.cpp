// Implementation of local_copies.hpp. It uses flock: the kernel releases the lock whenever its holder ends.
#include "trainer/checkpoint/local_copies.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/shared_folder/others_link.hpp"
#include "trainer/checkpoint/hashed_file.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "copy-";
constexpr const char* kLock = ".lock";
constexpr int kMostCopies = 100;  // nodes on one machine plus workers that hang; more indicates a mistake

[[noreturn]] void give_up(int reason, const std::string& what) {
  throw std::system_error(reason, std::generic_category(), what);
}

}  // namespace

fs::path local_copies_of(const fs::path& local_dir, const fs::path& run_dir, const std::string& config_digest) {
  const std::string digest = xxh3_128_of(run_dir.lexically_normal().string() + '\n' + config_digest);
  return local_dir / (run_dir.filename().string() + "-" + digest.substr(0, 16));
}

std::vector<fs::path> copy_folders(const fs::path& copies) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(copies, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kFolderPrefix)) found.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw std::system_error(error, "cannot list " + copies.string());
  }
  return found;
}

OwnCopy::OwnCopy(fs::path copies) : copies_(std::move(copies)) {}

OwnCopy::~OwnCopy() {
  if (lock_ >= 0) ::close(lock_);
}

const fs::path& OwnCopy::take() {
  if (lock_ >= 0 && still_there()) return folder_;
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
  for (int number = 0; number < kMostCopies; ++number) {
    folder_ = copies_ / (std::string(kFolderPrefix) + std::to_string(number));
    fs::create_directories(folder_);
    if (try_to_lock(folder_)) return folder_;
  }
  give_up(EBUSY, "all of " + std::to_string(kMostCopies) + " folders in " + copies_.string() + " are held by other processes");
}

bool OwnCopy::still_there() const {
  struct stat held {};
  struct stat named {};
  return ::fstat(lock_, &held) == 0 && ::stat((folder_ / kLock).c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

bool OwnCopy::try_to_lock(const fs::path& folder) {
  const fs::path file = folder / kLock;
  const int fd = open_unless_others_link(file, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) give_up(errno, "cannot make " + file.string());
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
    lock_ = fd;
    return true;
  }
  const int reason = errno;
  ::close(fd);
  if (reason != EWOULDBLOCK) give_up(reason, "cannot lock " + file.string());
  return false;
}

}  // namespace ddprun::trainer
