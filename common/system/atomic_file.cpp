// Implementation of atomic_file.hpp. It writes config.json, manifests, report.json and other files that must be complete after
// a crash. After a failure, the old file is unchanged and no temporary file is left.
#include "common/system/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>

#include "common/shared_folder/others_link.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/write_all.hpp"

namespace ddprun {
namespace {

[[noreturn]] void throw_errno(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

// A temporary file. The destructor closes it, and removes it unless it was renamed.
class TemporaryFile {
 public:
  TemporaryFile(std::filesystem::path path, unsigned mode)
      : path_(std::move(path)),
        file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, static_cast<mode_t>(mode))) {
    if (file_.get() < 0) throw_errno(errno, "cannot create " + path_.string());
  }
  ~TemporaryFile() {
    if (!published_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  enum class Fsync { kYes, kNo };
  void write(std::string_view content, const std::filesystem::path& target, Fsync fsync) {
    if (const int error = write_all(file_.get(), content); error != 0) throw_errno(error, "cannot write " + target.string());
    if (fsync == Fsync::kYes && ::fsync(file_.get()) != 0) throw_errno(errno, "cannot write " + target.string());
    const int fd = file_.release();  // close(2) frees the descriptor even if it returns an error
    if (::close(fd) != 0 && errno != EINTR) throw_errno(errno, "cannot write " + target.string());
  }

  void publish_as(const std::filesystem::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) throw_errno(errno, "cannot replace " + target.string());
    published_ = true;
  }

 private:
  std::filesystem::path path_;
  Descriptor file_;
  bool published_ = false;
};

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

// Returns a hidden name in the folder of `file` that no other process of this machine uses.
std::filesystem::path temporary_name(const std::filesystem::path& file) {
  static std::atomic<unsigned> counter{0};
  return folder_of(file) /
         ("." + file.filename().string() + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1)));
}

void replace_with_temporary(const std::filesystem::path& file, std::string_view content, unsigned mode,
                            TemporaryFile::Fsync fsync) {
  std::filesystem::path name = temporary_name(file);
  // The temporary name contains our pid, so an existing file of that name is from a killed process and not in use.
  ::unlink(name.c_str());
  TemporaryFile temporary(std::move(name), mode);
  temporary.write(content, file, fsync);
  temporary.publish_as(file);
}

}  // namespace

void write_file_atomically(const std::filesystem::path& file, std::string_view content, unsigned mode) {
  replace_with_temporary(file, content, mode, TemporaryFile::Fsync::kYes);
  fsync_directory(folder_of(file));
}

void replace_file_unsynced(const std::filesystem::path& file, std::string_view content, unsigned mode) {
  replace_with_temporary(file, content, mode, TemporaryFile::Fsync::kNo);
}

bool write_named_file(const std::filesystem::path& file, std::string_view content) {
  std::error_code none;
  const std::filesystem::file_status there = std::filesystem::symlink_status(file, none);
  if (!std::filesystem::exists(there) || std::filesystem::is_regular_file(there) || is_others_link(file)) {
    write_file_atomically(file, content);
    return true;
  }
  const Descriptor opened(open_unless_others_link(file, O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (opened.get() < 0) throw_errno(errno, "cannot open " + file.string());
  if (const int error = write_all(opened.get(), content); error != 0) throw_errno(error, "cannot write " + file.string());
  return false;
}

void make_durable_folder(const std::filesystem::path& folder) {
  const std::filesystem::path named = folder.has_filename() ? folder : folder.parent_path();  // "a/" names the folder a
  if (named.empty() || std::filesystem::is_directory(named)) return;
  const std::filesystem::path above = folder_of(named);
  if (above != named) make_durable_folder(above);
  if (std::filesystem::create_directory(named)) fsync_directory(above);
}

void fsync_directory(const std::filesystem::path& directory) {
  const Descriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0) throw_errno(errno, "cannot open folder " + directory.string());
  // Some file systems can't sync folders. The resulting errors are ignored, because there is no other way to sync a folder.
  if (::fsync(opened.get()) == 0 || errno == EINVAL || errno == ENOTSUP) return;
  throw_errno(errno, "cannot write folder " + directory.string());
}

}  // namespace ddprun
