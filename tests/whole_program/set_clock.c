// Provides a wall clock that a test can set (test_surroundings.py). This library is preloaded into a job and replaces the
// functions that read clocks. The file $CLOCK_WAS_SET contains two numbers of seconds. The first number is added to the wall
// clock. The second number is added to CLOCK_BOOTTIME, as if the machine had been suspended for that time. A change of the file
// takes effect immediately. The monotonic clock is unchanged.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* was_set;

__attribute__((constructor)) static void open_file(void) {
  const char* path = getenv("CLOCK_WAS_SET");
  const int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  void* page = fd < 0 ? MAP_FAILED : mmap(NULL, 2 * sizeof *was_set, PROT_READ, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) was_set = page;
  if (fd >= 0) close(fd);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const long done = syscall(SYS_clock_gettime, clock, now);
  if (done == 0 && was_set != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += was_set[0];
  if (done == 0 && was_set != NULL && clock == CLOCK_BOOTTIME) now->tv_sec += was_set[1];
  return (int)done;
}

int gettimeofday(struct timeval* now, void* zone) {
  (void)zone;
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (out != NULL) *out = exact.tv_sec;
  return exact.tv_sec;
}
