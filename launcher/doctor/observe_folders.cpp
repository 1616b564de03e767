#include "launcher/doctor/observe_folders.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <vector>

#include "common/system/descriptor.hpp"
#include "common/system/write_all.hpp"
#include "launcher/config_files/config_files.hpp"
#include "launcher/doctor/verdicts/mounts.hpp"
#include "launcher/machine/kernel_file.hpp"

namespace ddprun::doctor {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

std::string reason(int number) {
  return std::generic_category().message(number);
}

fs::path nearest_existing(fs::path path) {
  std::error_code ignored;
  while (!fs::exists(path, ignored) && path.has_parent_path() && path != path.root_path()) path = path.parent_path();
  return path;
}

// A small file in a folder; the destructor removes it.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& folder) : path_((folder / ".ddprun-doctor-XXXXXX").string()) {
    file_ = Descriptor(::mkostemp(path_.data(), O_CLOEXEC));
    error_ = file_.get() < 0 ? errno : 0;
  }
  ~TemporaryFile() {
    if (error_ == 0) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  int creation_error() const { return error_; }
  // Writes and closes the file, since a file server or a quota may report an error only at the close. This function does not
  // call fsync, which takes seconds on a busy disk. Returns an errno, or 0.
  int write(std::string_view text) {
    if (const int error = write_all(file_.get(), text); error != 0) return error;
    return ::close(file_.release()) == 0 ? 0 : errno;
  }

 private:
  std::string path_;
  Descriptor file_;
  int error_ = 0;
};

void try_to_write(const fs::path& folder, FolderFacts& facts) {
  const std::string text(4096, 'd');
  TemporaryFile first(folder), second(folder);
  for (TemporaryFile* file : {&first, &second}) {
    const int error = file->creation_error() != 0 ? file->creation_error() : file->write(text);
    if (error == 0) continue;
    facts.write_problem = reason(error);
    return;
  }
  if (::rename(first.path().c_str(), second.path().c_str()) != 0) facts.rename_problem = reason(errno);
}

// ---- data ----

// Limits of the sample. The purpose of the sample is to find files that cannot be read, not to measure the speed of the disk.
constexpr int kMaxFiles = 256;
constexpr int kMaxEntries = 20'000;  // maximum number of listed entries in a folder tree
constexpr std::chrono::seconds kMaxTime{20};
constexpr std::uint64_t kBlock = 256U << 10;

// Returns regular files below `folder`, evenly chosen from the first kMaxEntries entries.
std::vector<fs::path> sample_of_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  int entries = 0;
  auto walk = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && walk != fs::recursive_directory_iterator() && entries < kMaxEntries; walk.increment(error), ++entries) {
    std::error_code ignored;
    if (walk->is_regular_file(ignored)) files.push_back(walk->path());
  }
  std::ranges::sort(files);
  if (files.size() <= kMaxFiles) return files;
  std::vector<fs::path> chosen;
  for (std::size_t i = 0; i < kMaxFiles; ++i) chosen.push_back(files[i * files.size() / kMaxFiles]);
  return chosen;
}

// Reads the first and the last block of the file. Returns an errno, or 0.
int read_ends(const fs::path& file, std::uint64_t& bytes) {
  const Descriptor open_file(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (open_file.get() < 0) return errno;
  std::vector<char> block(kBlock);
  const off_t size = ::lseek(open_file.get(), 0, SEEK_END);
  for (const off_t at : {off_t{0}, std::max<off_t>(0, size - static_cast<off_t>(kBlock))}) {
    const ssize_t count = ::pread(open_file.get(), block.data(), block.size(), at);
    if (count < 0) return errno;
    bytes += static_cast<std::uint64_t>(count);
    if (size <= static_cast<off_t>(kBlock)) break;
  }
  return 0;
}

}  // namespace

FolderFacts observe_folder(const fs::path& path) {
  FolderFacts facts{.path = path.string()};
  const fs::path folder = nearest_existing(path);
  facts.probed = folder.string();
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    facts.write_problem = "it is not a folder";
    return facts;
  }
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) == 0) {
    facts.free_bytes = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
    if (info.f_files > 0) facts.free_inodes = info.f_favail;
  }
  const Mount mount =
      mount_of(fs::weakly_canonical(folder, ignored).string(), read_kernel_file("/proc/self/mountinfo").value_or(""));
  facts.file_system = mount.type;
  facts.forbids_programs = mount.has("noexec");
  facts.is_soft_mount = mount.type.starts_with("nfs") && mount.has("soft");
  try_to_write(folder, facts);
  return facts;
}

std::string temporary_folder() {
  const char* named = ::getenv("TMPDIR");
  return named == nullptr || *named == '\0' ? "/tmp" : named;
}

DataFacts observe_data(const TrainConfig& config, bool custom_program, Depth depth) {
  DataFacts facts{.missing = missing_files(config, custom_program)};
  const bool has_files = !custom_program && config.data.type != DataConfig::Type::kSynthetic;
  if (depth == Depth::kQuick || !facts.missing.empty() || !has_files) return facts;
  const auto begin = steady_clock::now();
  for (const fs::path& file : sample_of_files(config.data.dir)) {
    if (steady_clock::now() - begin > kMaxTime) break;
    if (const int error = read_ends(file, facts.bytes_read); error != 0) {
      facts.read_problems.push_back(file.string() + " cannot be read: " + reason(error));
      if (facts.read_problems.size() == 8) break;  // eight files are enough to show that the disk is broken
    }
    ++facts.files_read;
  }
  facts.seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
  return facts;
}

}  // namespace ddprun::doctor
