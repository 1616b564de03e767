// Implementation of run_lock.hpp: flock(2), and the messages about the lock's holder.
#include "common/run_directory/run_lock.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "common/base/error.hpp"
#include "common/shared_folder/others_link.hpp"
#include "common/system/host_name.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kGuardianTime{5};  // for the guardian to end the workers of a killed agent
// A process that only tests the lock takes a shared one for an instant (run_lock_is_held), without an entry in the file.
constexpr std::chrono::seconds kInstant{1};
constexpr std::chrono::milliseconds kBetweenTries{20};

struct Holder {
  std::string host;
  std::int64_t pid = 0;  // 0: unknown
  std::string started;
  std::int64_t term = 0;  // number of times that the directory was taken, including this one
};

std::string now_as_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

// The file may be empty or half written, since the holder may have just taken the lock. Text after its first line is the rest
// of an earlier, longer text.
Holder read_holder(int fd) {
  std::array<char, 1024> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  const auto end = std::find(text.begin(), text.begin() + std::max<ssize_t>(size, 0), '\n');
  const Json json = Json::parse(text.begin(), end, nullptr, false);
  Holder holder;
  if (!json.is_object()) return holder;
  if (const auto host = json.find("host"); host != json.end() && host->is_string()) holder.host = host->get<std::string>();
  if (const auto pid = json.find("pid"); pid != json.end() && pid->is_number_integer()) holder.pid = pid->get<std::int64_t>();
  if (const auto at = json.find("started"); at != json.end() && at->is_string()) holder.started = at->get<std::string>();
  if (const auto term = json.find("term"); term != json.end() && term->is_number_integer()) {
    holder.term = term->get<std::int64_t>();
  }
  return holder;
}

bool is_gone(const Holder& holder) {
  return holder.pid > 0 && holder.host == host_name() && ::kill(static_cast<pid_t>(holder.pid), 0) != 0 && errno == ESRCH;
}

// How long to wait for the lock before its holder is reported.
std::chrono::milliseconds patience(const Holder& holder) {
  if (is_gone(holder)) return kGuardianTime;
  const bool lives_here = holder.pid > 0 && holder.host == host_name();
  return lives_here ? std::chrono::milliseconds{0} : kInstant;
}

[[noreturn]] void throw_in_use(const std::filesystem::path& root, const Holder& holder) {
  std::string by = "another process";
  if (holder.pid > 0) by = "process " + std::to_string(holder.pid) + " on " + holder.host + ", since " + holder.started;
  throw UsageError("run directory " + root.string() + " is in use by a live run (" + by +
                   "): wait for it, stop it, or choose another --run-dir");
}

// The term in the claim on the checkpoints (trainer/checkpoint/writer_claim.hpp); 0 if there is no claim.
std::int64_t claimed_term(const std::filesystem::path& root) {
  const int fd = ::open((root / kWriterClaim).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return 0;
  const std::int64_t term = read_holder(fd).term;
  ::close(fd);
  return term;
}

// Does not use an atomic rename, since the lock is on this very file. The term is above every earlier one even if the lock file
// was removed, emptied or lost: a writer with a lower term than the claim's could publish nothing. The rest of the old text is
// cut off only after the new text is written, so that a kill or a full disk in between loses no term.
bool write_holder(int fd, std::int64_t term) {
  const std::string text = Json{{"host", host_name()}, {"pid", ::getpid()}, {"started", now_as_text()}, {"term", term}}.dump(
                               -1, ' ', false, Json::error_handler_t::replace) +
                           "\n";
  return ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
         ::ftruncate(fd, static_cast<off_t>(text.size())) == 0;
}

void write_next_holder(int fd, const std::filesystem::path& root, const std::filesystem::path& file) {
  if (!write_holder(fd, std::max(read_holder(fd).term, claimed_term(root)) + 1)) {
    const int error = errno;
    ::close(fd);
    throw UsageError("can't write " + file.string() + ": " + std::strerror(error) + "; mend that or choose another --run-dir");
  }
}

// True if the path still leads to the locked file: --fresh may have renamed the directory in between.
bool is_still_there(int fd, const std::filesystem::path& file) {
  struct stat locked {
  }, named{};
  return ::fstat(fd, &locked) == 0 && ::stat(file.c_str(), &named) == 0 && locked.st_dev == named.st_dev &&
         locked.st_ino == named.st_ino;
}

// The holder's name is written into the file, so it must be a file of this folder: not a link or a second name of another file.
bool leads_elsewhere(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && (info.st_nlink > 1 || !S_ISREG(info.st_mode));
}

int open_lock_file(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if ((fd < 0 && errno == ELOOP) || (fd >= 0 && leads_elsewhere(fd))) {
    if (fd >= 0) ::close(fd);
    throw UsageError(file.string() +
                     " is a link, or no regular file: expected the run's lock file; remove it or choose another --run-dir");
  }
  if (fd < 0) {
    throw UsageError("can't write " + file.string() + ": " + std::strerror(errno) + "; fix that or choose another --run-dir");
  }
  return fd;
}

}  // namespace

int take_run_lock(const std::filesystem::path& root) {
  const std::filesystem::path file = root / "lock";
  refuse_others_links(root);
  const Clock::time_point begin = Clock::now();
  while (true) {
    const int fd = open_lock_file(file);
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
      if (is_still_there(fd, file)) {
        write_next_holder(fd, root, file);
        return fd;
      }
      ::close(fd);
      continue;
    }
    const int error = errno;
    const Holder holder = read_holder(fd);
    ::close(fd);
    if (error != EWOULDBLOCK && error != EINTR) {
      throw UsageError("can't lock " + file.string() + ": " + std::strerror(error) +
                       "; choose a --run-dir on a file system that has locks");
    }
    if (error == EWOULDBLOCK && Clock::now() >= begin + patience(holder)) throw_in_use(root, holder);
    std::this_thread::sleep_for(kBetweenTries);
  }
}

int take_lock_of_moved_run(const std::filesystem::path& root, int held) {
  const std::filesystem::path file = root / "lock";
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return -1;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0 && is_still_there(fd, file) && write_holder(fd, read_holder(held).term)) return fd;
  ::close(fd);
  return -1;
}

bool run_lock_is_in_place(int fd, const std::filesystem::path& root) {
  return is_still_there(fd, root / "lock");
}

std::int64_t read_run_term(const std::filesystem::path& root) {
  const int fd = ::open((root / "lock").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return claimed_term(root);
  const std::int64_t term = read_holder(fd).term;
  ::close(fd);
  return term;
}

bool run_lock_is_held(const std::filesystem::path& root) {
  const int fd = ::open((root / "lock").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool held = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  return held;
}

void refuse_held_run(const std::filesystem::path& root) {
  if (!run_lock_is_held(root)) return;
  const int fd = ::open((root / "lock").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const Holder holder = fd < 0 ? Holder{} : read_holder(fd);
  if (fd >= 0) ::close(fd);
  throw_in_use(root, holder);
}

}  // namespace ddprun
