/* A worker in plain C that calls the C ABI of the worker channel. Argument 1 selects one of the tests in test_c_channel.py.
 * channel_worker.py is the same worker in Python. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ddprun_worker.h"

/* A barrier, as in a collective: each rank writes a byte to the other rank's FIFO and waits for a byte in its own. Without the
 * variables TURN_0 and TURN_1, as in a job of one rank, it returns immediately. Returns 0, or -1 if a FIFO cannot be used. */
static int meet(int rank) {
  static int ends[2] = {-1, -1};
  const char* const names[2] = {getenv("TURN_0"), getenv("TURN_1")};
  char byte = 0;
  if (names[0] == NULL) return 0;
  for (int i = 0; i < 2; ++i) {
    if (ends[i] < 0) ends[i] = open(names[i], O_RDWR);
    if (ends[i] < 0) return -1;
  }
  return write(ends[1 - rank], &byte, 1) == 1 && read(ends[rank], &byte, 1) == 1 ? 0 : -1;
}

static void print_step(const char* text, int rank, int64_t step) {
  printf("%s %d %" PRId64 "\n", text, rank, step);
  fflush(stdout);
}

int main(int argc, char** argv) {
  const char* const mode = argc > 1 ? argv[1] : "";
  const char* const rank_text = getenv("RANK");
  const int rank = rank_text == NULL ? 0 : atoi(rank_text);
  ddprun_worker* const job = ddprun_hello("channel_worker 1.0");
  if (strcmp(mode, "no job") == 0) {
    const int results = ddprun_progress(job, 1, 0, 0, 0, 0) + ddprun_error(job, DDPRUN_USAGE, "x") + ddprun_should_stop(job);
    ddprun_goodbye(job);
    printf("%s %d %d\n", job == NULL ? "no job" : "a job", results, ddprun_progress(job, -1, 0, 0, 0, 0));
    return 0;
  }
  if (strcmp(mode, "progress") == 0) {
    for (int64_t step = 1; step <= 1000; ++step) {
      if (meet(rank) != 0) return 1;
      ddprun_figure(job, "loss", 1.0 / (double)step);
      ddprun_figure(job, "accuracy", 0.5);
      ddprun_progress(job, step, 1000, 0, 1, step * 8);
      if (ddprun_step_time(job, step, rank == 0 ? 0.02 : 0.06, rank == 0 ? 0.041 : 0.001, 0) != 0) return 1;
    }
    if (ddprun_step_time(job, 1001, -1, 0, 0) != -1 || ddprun_step_time(job, 1001, 0, 0, 0.0 / 0.0) != -1) return 1;
    ddprun_saved(job, "/a/model", 1000, 0.25, 77);
    ddprun_goodbye(job);
    return 0;
  }
  if (strcmp(mode, "error") == 0) {
    ddprun_progress(job, 7, 0, 0, 0, 0);
    ddprun_error(job, DDPRUN_USAGE, "shard 3 is missing");
    return 1;
  }
  if (strcmp(mode, "behind") == 0) {
    ddprun_progress(job, 4 - rank, 0, 0, 0, 0);
    for (;;) {
      pause();
    }
  }
  for (int64_t step = 1; step < 1000000; ++step) {
    const struct timespec work = {0, 1000000 + 4000000 * rank};
    nanosleep(&work, NULL);
    ddprun_progress(job, step, 1000000, 0, 0, 0);
    const int stop = ddprun_should_stop(job);
    if (step == 1) print_step("at_work", rank, step);
    if (stop) {
      ddprun_saved(job, NULL, step, 0, 0);
      print_step("saved", rank, step);
      ddprun_goodbye(job);
      return DDPRUN_REQUEUE;
    }
  }
  return 1;
}
