#include "tests/trainer/checkpoint/failing_calls.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstring>

namespace ddprun::test {
namespace {

struct Watch {
  std::string folder;
  CallFault fault;
  std::vector<RecordedCall> calls;
};

thread_local Watch* watching = nullptr;

// Returns the path relative to the watched folder, or null if the path is outside of it.
const char* inside(const char* path) {
  if (!watching || path == nullptr) return nullptr;
  const std::string& folder = watching->folder;
  if (std::strncmp(path, folder.c_str(), folder.size()) != 0) return nullptr;
  const char* rest = path + folder.size();
  return *rest == '\0' ? rest : *rest == '/' ? rest + 1 : nullptr;
}

std::string path_of(int fd) {
  std::array<char, 4096> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const long size = ::syscall(SYS_readlink, link.c_str(), target.data(), target.size() - 1);
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : std::string();
}

// Returns the path of a name that is relative to an open folder.
std::string path_at(int folder, const char* name) {
  if (folder == AT_FDCWD || *name == '/') return name;
  return path_of(folder) + "/" + name;
}

enum class Verdict { kGo, kFail, kHalf, kDieInside };

// Counts the call and returns the fault to apply. Sets errno if the call must fail.
Verdict judge(const char* name, const char* path, bool needs_space, const char* second = "") {
  Watch& watch = *watching;
  const std::size_t number = watch.calls.size();
  watching = nullptr;  // turns off the watch, so that the calls in this function are not counted
  watch.calls.push_back({name, path, second, needs_space});
  watching = &watch;
  const CallFault& fault = watch.fault;
  const bool here = number == fault.call;
  using Kind = CallFault::Kind;
  if ((here && fault.kind == Kind::kFailCall) || (number >= fault.call && fault.kind == Kind::kFailFromCall && needs_space)) {
    errno = fault.error;
    return Verdict::kFail;
  }
  if (!here) return Verdict::kGo;
  if (fault.kind == Kind::kKills) ::kill(::getpid(), SIGKILL);
  if (fault.kind == Kind::kShort) return Verdict::kHalf;
  if (fault.kind == Kind::kKillInside) return Verdict::kDieInside;
  return Verdict::kGo;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool makes_a_file(int flags) {
  return (flags & O_CREAT) != 0;
}

}  // namespace

void watch(const std::filesystem::path& folder, CallFault fault) {
  static thread_local Watch state;
  state = {folder.string(), fault, {}};
  state.calls.reserve(4096);
  watching = &state;
}

std::vector<RecordedCall> stop_watching() {
  Watch* const state = watching;
  watching = nullptr;
  return state ? state->calls : std::vector<RecordedCall>{};
}

}  // namespace ddprun::test

using ddprun::test::inside;
using ddprun::test::judge;
using ddprun::test::makes_a_file;
using ddprun::test::next;
using ddprun::test::path_at;
using ddprun::test::path_of;
using ddprun::test::Verdict;
using ddprun::test::watching;

extern "C" {

int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open");
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (const char* name = inside(path)) {
    if (judge("open", name, makes_a_file(flags)) == Verdict::kFail) return -1;
  }
  return real(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  static auto* const real = next<int(int, const char*, int, ...)>("openat");
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (watching != nullptr) {
    const std::string whole = path_at(folder, path);
    if (const char* name = inside(whole.c_str())) {
      if (judge("openat", name, makes_a_file(flags)) == Verdict::kFail) return -1;
    }
  }
  return real(folder, path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  static auto* const real = next<FILE*(const char*, const char*)>("fopen");
  if (const char* name = inside(path)) {
    if (judge("fopen", name, std::strchr(mode, 'w') != nullptr) == Verdict::kFail) return nullptr;
  }
  return real(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  static auto* const real = next<FILE*(const char*, const char*)>("fopen64");
  if (const char* name = inside(path)) {
    if (judge("fopen", name, std::strchr(mode, 'w') != nullptr) == Verdict::kFail) return nullptr;
  }
  return real(path, mode);
}

ssize_t write(int fd, const void* data, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  if (watching != nullptr) {
    const std::string path = path_of(fd);
    if (const char* name = inside(path.c_str())) {
      switch (judge("write", name, true)) {
        case Verdict::kFail:
          return -1;
        case Verdict::kHalf:
          return real(fd, data, size / 2 + size % 2);
        case Verdict::kDieInside:
          real(fd, data, size / 2);
          ::kill(::getpid(), SIGKILL);
          break;
        case Verdict::kGo:
          break;
      }
    }
  }
  return real(fd, data, size);
}

ssize_t read(int fd, void* data, size_t size) {
  static auto* const real = next<ssize_t(int, void*, size_t)>("read");
  if (watching != nullptr) {
    const std::string path = path_of(fd);
    if (const char* name = inside(path.c_str())) {
      if (judge("read", name, false) == Verdict::kFail) return -1;
    }
  }
  return real(fd, data, size);
}

int fsync(int fd) {
  static auto* const real = next<int(int)>("fsync");
  if (watching != nullptr) {
    const std::string path = path_of(fd);
    if (const char* name = inside(path.c_str())) return judge("fsync", name, true) == Verdict::kFail ? -1 : 0;
  }
  return real(fd);
}

int close(int fd) {
  static auto* const real = next<int(int)>("close");
  if (watching != nullptr) {
    const std::string path = path_of(fd);
    if (const char* name = inside(path.c_str())) {
      const Verdict verdict = judge("close", name, false);
      const int reason = errno;
      const int result = real(fd);  // Linux closes the descriptor even if close() returns an error
      errno = reason;
      return verdict == Verdict::kFail ? -1 : result;
    }
  }
  return real(fd);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  if (const char* name = inside(from)) {
    if (judge("rename", name, true, inside(to)) == Verdict::kFail) return -1;
  }
  return real(from, to);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  if (const char* name = inside(path)) {
    if (judge("mkdir", name, true) == Verdict::kFail) return -1;
  }
  return real(path, mode);
}

int symlink(const char* target, const char* path) noexcept {
  static auto* const real = next<int(const char*, const char*)>("symlink");
  if (const char* name = inside(path)) {
    if (judge("symlink", name, true) == Verdict::kFail) return -1;
  }
  return real(target, path);
}

int unlink(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("unlink");
  if (const char* name = inside(path)) {
    if (judge("unlink", name, false) == Verdict::kFail) return -1;
  }
  return real(path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static auto* const real = next<int(int, const char*, int)>("unlinkat");
  if (watching != nullptr) {
    const std::string whole = path_at(folder, path);
    if (const char* name = inside(whole.c_str())) {
      if (judge("unlinkat", name, false) == Verdict::kFail) return -1;
    }
  }
  return real(folder, path, flags);
}

int remove(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("remove");
  if (const char* name = inside(path)) {
    if (judge("remove", name, false) == Verdict::kFail) return -1;
  }
  return real(path);
}

DIR* opendir(const char* path) {
  static auto* const real = next<DIR*(const char*)>("opendir");
  if (const char* name = inside(path)) {
    if (judge("opendir", name, false) == Verdict::kFail) return nullptr;
  }
  return real(path);
}

DIR* fdopendir(int fd) {
  static auto* const real = next<DIR*(int)>("fdopendir");
  if (watching != nullptr) {
    const std::string path = path_of(fd);
    if (const char* name = inside(path.c_str())) {
      if (judge("fdopendir", name, false) == Verdict::kFail) return nullptr;
    }
  }
  return real(fd);
}

struct dirent* readdir(DIR* folder) {
  static auto* const real = next<struct dirent*(DIR*)>("readdir");
  if (watching != nullptr) {
    const std::string path = path_of(::dirfd(folder));
    if (const char* name = inside(path.c_str())) {
      if (judge("readdir", name, false) == Verdict::kFail) return nullptr;
    }
  }
  return real(folder);
}

int stat(const char* path, struct stat* result) noexcept {
  static auto* const real = next<int(const char*, struct stat*)>("stat");
  if (const char* name = inside(path)) {
    if (judge("stat", name, false) == Verdict::kFail) return -1;
  }
  return real(path, result);
}

int lstat(const char* path, struct stat* result) noexcept {
  static auto* const real = next<int(const char*, struct stat*)>("lstat");
  if (const char* name = inside(path)) {
    if (judge("lstat", name, false) == Verdict::kFail) return -1;
  }
  return real(path, result);
}

}  // extern "C"
