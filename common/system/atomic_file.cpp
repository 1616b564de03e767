// Writes a temporary file, syncs it, renames it and syncs the folder. Used for config.json, manifests, report.json and other
// files that must be complete after a crash. A failure keeps the old file unchanged, and leaves no temporary file.
#include "common/system/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>

#include "common/shared_folder/others_link.hpp"
#include "common/system/write_all.hpp"

namespace ddprun {
namespace {

[[noreturn]] void throw_errno(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

// The destructor closes the file, and removes it unless it was renamed.
class TemporaryFile {
 public:
  TemporaryFile(std::filesystem::path path, unsigned mode) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, static_cast<mode_t>(mode));
    if (fd_ < 0) throw_errno(errno, "can't make " + path_.string());
  }
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!published_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::string_view content, const std::filesystem::path& target) {
    if (const int error = write_all(fd_, content); error != 0) throw_errno(error, "can't write " + target.string());
    if (::fsync(fd_) != 0) throw_errno(errno, "can't write " + target.string());
    const int fd = fd_;
    fd_ = -1;  // close(2) frees it even if it fails
    if (::close(fd) != 0 && errno != EINTR) throw_errno(errno, "can't write " + target.string());
  }

  void publish_as(const std::filesystem::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) throw_errno(errno, "can't replace " + target.string());
    published_ = true;
  }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  bool published_ = false;
};

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

// A hidden name that no other process of this machine uses.
std::filesystem::path temporary_name(const std::filesystem::path& file) {
  static std::atomic<unsigned> counter{0};
  return folder_of(file) /
         ("." + file.filename().string() + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1)));
}

}  // namespace

void write_file_atomically(const std::filesystem::path& file, std::string_view content, unsigned mode) {
  std::filesystem::path name = temporary_name(file);
  // Only a killed process with our pid can have left a file of that name, so it is not in use.
  ::unlink(name.c_str());
  TemporaryFile temporary(std::move(name), mode);
  temporary.write(content, file);
  temporary.publish_as(file);
  fsync_directory(folder_of(file));
}

bool write_named_file(const std::filesystem::path& file, std::string_view content) {
  std::error_code none;
  const std::filesystem::file_status there = std::filesystem::symlink_status(file, none);
  if (!std::filesystem::exists(there) || std::filesystem::is_regular_file(there) || is_others_link(file)) {
    write_file_atomically(file, content);
    return true;
  }
  const int fd = open_unless_others_link(file, O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (fd < 0) throw_errno(errno, "can't open " + file.string());
  const int error = write_all(fd, content);
  ::close(fd);
  if (error != 0) throw_errno(error, "can't write " + file.string());
  return false;
}

void make_durable_folder(const std::filesystem::path& folder) {
  const std::filesystem::path named = folder.has_filename() ? folder : folder.parent_path();  // "a/" is folder a
  if (named.empty() || std::filesystem::is_directory(named)) return;
  const std::filesystem::path above = folder_of(named);
  if (above != named) make_durable_folder(above);
  if (std::filesystem::create_directory(named)) fsync_directory(above);
}

void fsync_directory(const std::filesystem::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw_errno(errno, "can't open folder " + directory.string());
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems can't sync folders; there is no alternative for them.
  if (result != 0 && error != EINVAL && error != ENOTSUP) throw_errno(error, "can't write folder " + directory.string());
}

}  // namespace ddprun
