#include "tests/trainer/checkpoint/refused_direct.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

namespace ddprun::test {
namespace {

std::atomic<Direct> how{Direct::kAsItIs};
std::atomic<int> count{0};

bool refuses(Direct what) {
  if (how.load() != what) return false;
  count.fetch_add(1);
  count.notify_all();
  // Waits until the write of a second thread is refused as well. The writer has several buffers in flight, and must handle
  // several refusals.
  if (what == Direct::kWritesRefused) count.wait(1);
  errno = EINVAL;
  return true;
}

bool is_direct(int fd) {
  const long flags = ::syscall(SYS_fcntl, fd, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT) != 0;
}

}  // namespace

RefusedDirect::RefusedDirect(Direct as) {
  count = 0;
  how = as;
}

RefusedDirect::~RefusedDirect() {
  how = Direct::kAsItIs;
}

int RefusedDirect::refusals() {
  return count;
}

}  // namespace ddprun::test

using ddprun::test::Direct;

extern "C" {

int fcntl(int fd, int command, ...) {
  static auto* const real = reinterpret_cast<int (*)(int, int, ...)>(::dlsym(RTLD_NEXT, "fcntl"));
  std::va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);  // a number or a pointer; both have the same size here
  va_end(arguments);
  const bool switches_on = command == F_SETFL && (reinterpret_cast<long>(argument) & O_DIRECT) != 0;
  if (switches_on && ddprun::test::refuses(Direct::kFlagRefused)) return -1;
  return real(fd, command, argument);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  static auto* const real = reinterpret_cast<ssize_t (*)(int, const void*, size_t, off_t)>(::dlsym(RTLD_NEXT, "pwrite"));
  if (ddprun::test::is_direct(fd) && ddprun::test::refuses(Direct::kWritesRefused)) return -1;
  return real(fd, data, size, offset);
}

}  // extern "C"
