// Implementation of run_lock.hpp: flock(2), the content of the lock file, and the error messages.
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
#include "common/system/descriptor.hpp"
#include "common/system/host_name.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kGuardianTime{5};  // time that the guardian of a killed agent may take to end the workers
// run_lock_is_held() takes a shared lock for a moment, and does not write its process id to the lock file. So a lock without a
// known holder may belong to such a call. It is reported only if it lasts longer than this time.
constexpr std::chrono::seconds kInstant{1};
constexpr std::chrono::milliseconds kBetweenTries{20};

struct Holder {
  std::string host;
  std::int64_t pid = 0;  // 0: unknown
  std::string started;
  std::int64_t term = 0;  // a number that increases each time that a process takes the lock
};

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

// Returns the holder in the first line of the lock file. The line is missing or incomplete if the holder has just taken the
// lock. Any text after the first line is a remainder of an earlier, longer content.
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

// Returns how long to wait for the lock before an error reports its holder.
std::chrono::milliseconds patience(const Holder& holder) {
  if (is_gone(holder)) return kGuardianTime;
  const bool is_local = holder.pid > 0 && holder.host == host_name();
  return is_local ? std::chrono::milliseconds{0} : kInstant;
}

[[noreturn]] void throw_in_use(const std::filesystem::path& root, const Holder& holder) {
  std::string by = "another process";
  if (holder.pid > 0) by = "process " + std::to_string(holder.pid) + " on " + holder.host + ", since " + holder.started;
  throw UsageError("run directory " + root.string() + " is in use by a live run (" + by +
                   "): wait for it, stop it, or choose another --run-dir");
}

// Returns the term of the lock in the checkpoint claim (trainer/checkpoint/writer_claim.hpp); 0 if there is no claim.
std::int64_t claimed_term(const std::filesystem::path& root) {
  const Descriptor claim(::open((root / kWriterClaim).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return claim.get() < 0 ? 0 : read_holder(claim.get()).term;
}

// Writes the holder into the file in place. An atomic rename is impossible, because the lock is on this file. The old text is
// truncated only after the new text is written, so the term is not lost if the process is killed or the disk becomes full in
// between.
bool write_holder(int fd, std::int64_t term) {
  const std::string text = Json{{"host", host_name()}, {"pid", ::getpid()}, {"started", utc_now()}, {"term", term}}.dump(
                               -1, ' ', false, Json::error_handler_t::replace) +
                           "\n";
  return ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
         ::ftruncate(fd, static_cast<off_t>(text.size())) == 0;
}

// Writes this process as the holder. Its term (a counter) is higher than the terms in the lock file and in the checkpoint
// claim. The claim matters if the lock file was removed or emptied, because a writer whose term is lower than the claim cannot
// publish a checkpoint.
void write_next_holder(int fd, const std::filesystem::path& root, const std::filesystem::path& file) {
  if (write_holder(fd, std::max(read_holder(fd).term, claimed_term(root)) + 1)) return;
  const int error = errno;
  throw UsageError("cannot write " + file.string() + ": " + std::strerror(error) +
                   "; fix the cause or choose another --run-dir");
}

// Returns true if the file is a special file or has a second name (hard link). ddprun does not write the holder into a file of
// these kinds, because that could change a file with a different purpose.
bool is_link_or_special(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && (info.st_nlink > 1 || !S_ISREG(info.st_mode));
}

// Returns the lock file, opened for reading; no descriptor if there is no lock file.
Descriptor opened_lock(const std::filesystem::path& root) {
  return Descriptor(::open((root / "lock").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

Descriptor open_lock_file(const std::filesystem::path& file) {
  Descriptor opened(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
  if (opened.get() < 0 ? errno == ELOOP : is_link_or_special(opened.get())) {
    throw UsageError(file.string() +
                     " is a link or not a regular file: expected the run's lock file; remove it or choose another --run-dir");
  }
  if (opened.get() < 0) {
    throw UsageError("cannot write " + file.string() + ": " + std::strerror(errno) +
                     "; fix the cause or choose another --run-dir");
  }
  return opened;
}

}  // namespace

int take_run_lock(const std::filesystem::path& root) {
  const std::filesystem::path file = root / "lock";
  refuse_others_links(root);
  const Clock::time_point begin = Clock::now();
  while (true) {
    Descriptor lock = open_lock_file(file);
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
      if (!is_same_file(lock.get(), file)) continue;  // another invocation with --fresh may have renamed the directory
      write_next_holder(lock.get(), root, file);
      return lock.release();
    }
    const int error = errno;
    const Holder holder = read_holder(lock.get());
    if (error != EWOULDBLOCK && error != EINTR) {
      throw UsageError("cannot lock " + file.string() + ": " + std::strerror(error) +
                       "; choose a --run-dir on a file system that supports file locks (flock)");
    }
    if (error == EWOULDBLOCK && Clock::now() >= begin + patience(holder)) throw_in_use(root, holder);
    std::this_thread::sleep_for(kBetweenTries);
  }
}

int take_lock_of_moved_run(const std::filesystem::path& root, int held) {
  const std::filesystem::path file = root / "lock";
  Descriptor lock(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (lock.get() < 0) return -1;
  const bool taken = ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 && is_same_file(lock.get(), file) &&
                     write_holder(lock.get(), read_holder(held).term);
  return taken ? lock.release() : -1;
}

bool run_lock_is_in_place(int fd, const std::filesystem::path& root) {
  return is_same_file(fd, root / "lock");
}

std::int64_t read_run_term(const std::filesystem::path& root) {
  const Descriptor lock = opened_lock(root);
  return lock.get() < 0 ? claimed_term(root) : read_holder(lock.get()).term;
}

bool run_lock_is_held(const std::filesystem::path& root) {
  const Descriptor lock = opened_lock(root);
  return lock.get() >= 0 && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void refuse_held_run(const std::filesystem::path& root) {
  if (!run_lock_is_held(root)) return;
  const Descriptor lock = opened_lock(root);
  throw_in_use(root, lock.get() < 0 ? Holder{} : read_holder(lock.get()));
}

}  // namespace ddprun
