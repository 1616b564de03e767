#include "rendezvous/identity/token_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/system/atomic_file.hpp"
#include "common/system/descriptor.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestTokenFile = 8192;
// On a network file system, inotify does not report files that other nodes create. So we also poll the file: first after
// kFirstPoll, and then at growing intervals.
constexpr std::chrono::milliseconds kFirstPoll{50};
constexpr std::chrono::milliseconds kLongestRetryPause{500};

// Returns true if the file's mount is read-only, so that no process can change the file through this mount.
bool on_read_only_mount(int fd) {
  struct statvfs mount {};
  return ::fstatvfs(fd, &mount) == 0 && (mount.f_flag & ST_RDONLY) != 0;
}

void check_permissions(int fd, const fs::path& file) {
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  const std::string problem = token_file_problem({.is_regular = known && S_ISREG(status.st_mode),
                                                  .owner = status.st_uid,
                                                  .mode = status.st_mode & 07777U,
                                                  .read_only_mount = on_read_only_mount(fd)},
                                                 ::geteuid(), file.string());
  if (!problem.empty()) throw TokenError("the token file " + file.string() + " " + problem);
}

std::string read_all(int fd, const fs::path& file) {
  std::string text;
  // Reserves the whole size first, because a reallocation would leave a copy of the token in freed memory.
  text.reserve(kLargestTokenFile + 1);
  std::array<char, 512> part{};
  for (;;) {
    const ssize_t count = ::read(fd, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw TokenError("cannot read the token file " + file.string() + ": " + std::strerror(errno));
    if (count == 0 || text.size() > kLargestTokenFile) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  ::explicit_bzero(part.data(), part.size());
  return text;
}

[[noreturn]] void throw_cannot_create(const fs::path& file, int error) {
  throw TokenError("cannot create the token file " + file.string() + ": " + std::strerror(error) +
                   ". Create one elsewhere (ddprun token --new FILE) and pass it with --token-file on every node");
}

void make_folders(const fs::path& folder) {
  if (folder.empty()) return;
  struct stat status {};
  if (::stat(folder.c_str(), &status) == 0) return;
  make_folders(folder.parent_path());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) throw_cannot_create(folder / "token", errno);
}

// Renames `temporary` to `file` atomically. Returns false if `file` already exists.
bool publish(const fs::path& temporary, const fs::path& file) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, file.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS) {  // the file system does not support RENAME_NOREPLACE; NFS is an example
    if (::link(temporary.c_str(), file.c_str()) == 0) {
      ::unlink(temporary.c_str());
      return true;
    }
  }
  const int error = errno;
  ::unlink(temporary.c_str());
  if (error == EEXIST) return false;
  throw_cannot_create(file, error);
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Returns true if the file exists. A network file system may have cached that the file does not exist. So this function opens
// the folder first, which refreshes this cache.
bool exists_now(const fs::path& file) {
  const Descriptor folder(::open(folder_of(file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder.get() >= 0 && ::faccessat(folder.get(), file.filename().c_str(), F_OK, 0) == 0;
}

void drain(int fd) {
  std::array<char, 4096> events{};
  while (::read(fd, events.data(), events.size()) > 0) {
  }
}

}  // namespace

std::string token_file_problem(const TokenFileFacts& facts, uid_t user, const std::string& file) {
  constexpr mode_t kOthers = 07, kGroup = 070, kGroupReads = 040;
  if (!facts.is_regular) return "is not a regular file";
  if (facts.owner != user && facts.owner != 0) {
    return "belongs to another user (user id " + std::to_string(facts.owner) +
           "), and that user can change it: use a copy of the file that belongs to you";
  }
  if ((facts.mode & (kGroup | kOthers)) == 0) return "";
  const bool only_group_reads = (facts.mode & (kGroup | kOthers)) == kGroupReads;
  if (only_group_reads && facts.owner == 0 && facts.read_only_mount) return "";
  std::array<char, 16> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(facts.mode));
  const std::string found = std::string("has mode ") + mode.data();
  if (facts.owner != 0 || user == 0) {
    return found + ", so other users can read or write it. If no other user did, run chmod 600 '" + file +
           "'; otherwise create a new token";
  }
  // A file of root with this mode is probably mounted from a Kubernetes Secret. This user cannot change it.
  const std::string expected = only_group_reads
                                   ? "A token file that belongs to root may have mode 0440 only on a read-only mount"
                                   : "A token file that belongs to root needs mode 0400, or 0440 on a read-only mount";
  return found + ", so other users can read or write it. " + expected +
         ": in Kubernetes, set defaultMode: 0440 on the Secret's volume and readOnly: true on its mount; elsewhere, use a copy "
         "of "
         "the file that belongs to you, with mode 0600";
}

Token read_token_file(const fs::path& file) {
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (opened.get() < 0) {
    throw TokenError("cannot read the token file " + file.string() + ": " + std::strerror(errno) +
                     (errno == ENOENT ? ". Copy it from the first node, where ddprun token prints its path" : ""));
  }
  check_permissions(opened.get(), file);
  return check_token(read_all(opened.get(), file), file.string());
}

bool make_token_file(const fs::path& file, const Token& content) {
  make_folders(file.parent_path());
  const fs::path temporary = file.parent_path() / ("." + file.filename().string() + ".tmp-" + std::to_string(::getpid()));
  try {
    write_file_atomically(temporary, std::string(content.text()) + "\n", 0600);
  } catch (const std::system_error& error) {
    throw_cannot_create(file, error.code().value());
  }
  return publish(temporary, file);
}

bool wait_for_token_file(const fs::path& file, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + patience;
  const Descriptor events(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  auto pause = kFirstPoll;
  bool watched = false;
  for (;;) {
    if (!watched && events.get() >= 0) {
      watched = ::inotify_add_watch(events.get(), folder_of(file).c_str(), IN_CREATE | IN_MOVED_TO) >= 0;
    }
    if (exists_now(file)) return true;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd poll_for{events.get(), POLLIN, 0};
    const int ready = ::poll(&poll_for, 1, static_cast<int>(std::min(left, pause).count()) + 1);
    if (ready > 0) drain(events.get());
    pause = std::min(2 * pause, kLongestRetryPause);
  }
}

}  // namespace ddprun
