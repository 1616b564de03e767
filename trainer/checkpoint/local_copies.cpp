// Implementation of local_copies.hpp. It uses flock(2), because the kernel releases the lock when the process that holds it
// exits.
#include "trainer/checkpoint/local_copies.hpp"

#include <fcntl.h>
#include <sys/file.h>

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
// The limit is larger than the number of nodes and hung workers on one machine, so reaching it indicates an error.
constexpr int kMaxCopies = 100;

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
  if (error && error != std::errc::no_such_file_or_directory) throw std::system_error(error, "cannot list " + copies.string());
  return found;
}

LocalCopyFolder::LocalCopyFolder(fs::path copies) : copies_(std::move(copies)) {}

const fs::path& LocalCopyFolder::take() {
  if (lock_.get() >= 0 && is_same_file(lock_.get(), folder_ / kLock)) return folder_;
  lock_ = Descriptor();
  for (int number = 0; number < kMaxCopies; ++number) {
    folder_ = copies_ / (std::string(kFolderPrefix) + std::to_string(number));
    fs::create_directories(folder_);
    if (try_to_lock(folder_)) return folder_;
  }
  give_up(EBUSY, "all " + std::to_string(kMaxCopies) + " folders in " + copies_.string() + " are locked by other processes");
}

bool LocalCopyFolder::try_to_lock(const fs::path& folder) {
  const fs::path file = folder / kLock;
  Descriptor opened(open_unless_others_link(file, O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (opened.get() < 0) give_up(errno, "cannot create " + file.string());
  if (::flock(opened.get(), LOCK_EX | LOCK_NB) == 0) {
    lock_ = std::move(opened);
    return true;
  }
  if (errno != EWOULDBLOCK) give_up(errno, "cannot lock " + file.string());
  return false;
}

}  // namespace ddprun::trainer
