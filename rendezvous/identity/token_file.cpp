// Token files (token.hpp): reads them and checks their permissions, creates them once, and waits for one that another node
// creates on a shared file system.
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/system/atomic_file.hpp"
#include "rendezvous/identity/token.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestTokenFile = 8192;
// On a network file system inotify does not report writes of other nodes, so we poll at these intervals.
constexpr std::chrono::milliseconds kFirstLook{50};
constexpr std::chrono::milliseconds kLongestRetryPause{500};

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void check_permissions(int fd, const fs::path& file) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) throw TokenError("the token " + file.string() + " is not a file");
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    throw TokenError("the token file " + file.string() + " belongs to another user (" + std::to_string(status.st_uid) +
                     "), who could change it: make a copy of your own");
  }
  if ((status.st_mode & 077U) != 0) {
    std::array<char, 8> mode{};
    std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(status.st_mode & 07777U));
    throw TokenError("the token file " + file.string() + " has mode " + mode.data() +
                     ", so that others can read or write it. If nobody did: chmod 600 '" + file.string() +
                     "'; otherwise make a new one");
  }
}

std::string read_all(int fd, const fs::path& file) {
  std::string text;
  text.reserve(kLargestTokenFile + 1);  // growing the string would leave copies of the token in freed memory
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

[[noreturn]] void cannot_make(const fs::path& file, int error) {
  throw TokenError("cannot make the token file " + file.string() + ": " + std::strerror(error) +
                   ". Make one elsewhere (ddprun token --new FILE) and name it with --token-file on every node");
}

void make_folders(const fs::path& folder) {
  if (folder.empty()) return;
  struct stat status {};
  if (::stat(folder.c_str(), &status) == 0) return;
  make_folders(folder.parent_path());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) cannot_make(folder / "token", errno);
}

// Renames atomically. Returns false if the final name is taken.
bool publish(const fs::path& temporary, const fs::path& file) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, file.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS) {  // file systems without RENAME_NOREPLACE, such as NFS
    if (::link(temporary.c_str(), file.c_str()) == 0) {
      ::unlink(temporary.c_str());
      return true;
    }
  }
  const int error = errno;
  ::unlink(temporary.c_str());
  if (error == EEXIST) return false;
  cannot_make(file, error);
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// A network file system may cache that a file does not exist. Opening its folder refreshes that cache.
bool is_there(const fs::path& file) {
  const Descriptor folder(::open(folder_of(file).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder.get() >= 0 && ::faccessat(folder.get(), file.filename().c_str(), F_OK, 0) == 0;
}

void drain(int fd) {
  std::array<char, 4096> events{};
  while (::read(fd, events.data(), events.size()) > 0) {
  }
}

}  // namespace

Token read_token_file(const fs::path& file) {
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (opened.get() < 0) {
    throw TokenError("cannot read the token file " + file.string() + ": " + std::strerror(errno) +
                     (errno == ENOENT ? ". Copy it from the first node, where ddprun token says where it is" : ""));
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
    cannot_make(file, error.code().value());
  }
  return publish(temporary, file);
}

bool wait_for_token_file(const fs::path& file, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + patience;
  const Descriptor events(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  auto pause = kFirstLook;
  bool watched = false;
  for (;;) {
    if (!watched && events.get() >= 0) {
      watched = ::inotify_add_watch(events.get(), folder_of(file).c_str(), IN_CREATE | IN_MOVED_TO) >= 0;
    }
    if (is_there(file)) return true;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd poll_for{events.get(), POLLIN, 0};
    const int ready = ::poll(&poll_for, 1, static_cast<int>(std::min(left, pause).count()) + 1);
    if (ready > 0) drain(events.get());
    pause = std::min(2 * pause, kLongestRetryPause);
  }
}

}  // namespace ddprun
