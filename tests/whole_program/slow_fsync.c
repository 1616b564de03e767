// Simulates a disk that stalls once (test_hangs.py). This library is preloaded into a job. In each process, the first fsync of
// a file whose path contains $SLOW_FSYNC_OF takes $SLOW_FSYNC_SECONDS.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int fd) {
  static int slept = 0;
  const char* of = getenv("SLOW_FSYNC_OF");
  const char* seconds = getenv("SLOW_FSYNC_SECONDS");
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (of != NULL && seconds != NULL && size > 0) {
    path[size] = 0;
    if (strstr(path, of) != NULL && !__atomic_exchange_n(&slept, 1, __ATOMIC_SEQ_CST)) sleep((unsigned)atoi(seconds));
  }
  return (int)syscall(SYS_fsync, fd);
}
