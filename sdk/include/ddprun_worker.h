/* The worker channel for programs in C, and in any language that can call C. A program reports its progress, checkpoints and
 * errors to the ddprun agent that started it, and receives the request to save and stop. The library libddprun_channel needs
 * neither LibTorch nor other parts of ddprun. docs/worker-channel.md describes the effect of each message.
 *
 *   ddprun_worker *job = ddprun_hello("myloop 1.0");         // NULL outside a job; calls with NULL do nothing
 *   for (int64_t step = 1; step <= total; ++step) {
 *     ...
 *     ddprun_figure(job, "loss", loss);
 *     ddprun_progress(job, step, total, 0, 0, samples);      // cheap enough for every step
 *     if (ddprun_should_stop(job)) { save(); return DDPRUN_REQUEUE; }
 *   }
 *   ddprun_goodbye(job);
 *
 * Any thread may call any function, except after ddprun_goodbye() and in a signal handler. In a forked child process the
 * functions do nothing. They never print. Two kinds of calls can block. While a job stops, ddprun_should_stop() waits until the
 * agent has chosen the step at which all ranks save. If the agent does not read (for example, it is stopped), a call that sends
 * a message waits up to 10 s, and calls of other threads wait for it. Then the channel is closed. */
#ifndef DDPRUN_WORKER_H
#define DDPRUN_WORKER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDPRUN_CHANNEL_MAJOR 1
#define DDPRUN_CHANNEL_MINOR 4
#define DDPRUN_REQUEUE 85 /* exit code of a program that has saved its state, so that the scheduler runs it again */

typedef struct ddprun_worker ddprun_worker;

enum ddprun_phase {
  DDPRUN_STARTING = 0,
  DDPRUN_JOINING = 1,
  DDPRUN_RUNNING = 2,
  DDPRUN_SAVING = 3,
  DDPRUN_EVALUATING = 4,
  DDPRUN_DONE = 5
};

/* Kinds of failure. docs/worker-channel.md describes which of them lead to a restart. */
enum ddprun_error_kind {
  DDPRUN_EXCEPTION = 0,
  DDPRUN_USAGE = 1, /* the config or the data is wrong, so a restart would fail as well */
  DDPRUN_OUT_OF_MEMORY = 2,
  DDPRUN_LOST_PEER = 3, /* another rank failed first */
  DDPRUN_DIVERGED = 4,  /* training diverged, so a restart would fail as well */
  DDPRUN_CHECKPOINT = 5
};

/* Opens the channel that the environment names, and sends the program's name and version. Returns NULL if this process is not a
 * worker of ddprun. Call this once, and early. A program that you start before this call inherits the channel and can use it.
 */
ddprun_worker* ddprun_hello(const char* program);

/* The functions below that return an int return 0, or -1 if an argument is invalid. In that case nothing was sent.
 * ddprun_should_stop() is the exception: it returns 0 or 1. */

/* Reports that the program has entered a phase. ddprun_progress() enters DDPRUN_RUNNING by itself. `step` is counted from the
 * start of the job, over all its restarts. */
int ddprun_enter(ddprun_worker* worker, int phase, int64_t step, int64_t epoch);

/* Sets a metric of the newest step: "loss", "lr", "samples_per_s", or any other name. The next progress message contains it.
 * ddprun shows the values of rank 0 only. */
int ddprun_figure(ddprun_worker* worker, const char* name, double value);

/* Reports a finished step. `epoch` is counted from 0. `samples` is the number of samples that all ranks have processed since
 * the job started. Pass 0 for an unknown total. At most five messages are sent per second, but the first and the last step are
 * always reported. */
int ddprun_progress(ddprun_worker* worker, int64_t step, int64_t steps_total, int64_t epoch, int64_t epochs, int64_t samples);

/* Reports the duration of a step on this rank, in seconds. From these times ddprun finds the rank that delays the others. Call
 * this at every step on every rank, or not at all. `waiting` is the time in which this rank waited for other ranks, and `own`
 * is the rest of the step. `data` is the part of `own` in which this rank waited for the batch. At most five messages are sent
 * per second. */
int ddprun_step_time(ddprun_worker* worker, int64_t step, double own, double waiting, double data);

/* Reports that a checkpoint is complete. `path` may be NULL. `seconds` is how long training paused for the save. `bytes` is the
 * size of the checkpoint, or 0 if it is unknown. */
int ddprun_saved(ddprun_worker* worker, const char* path, int64_t step, double seconds, int64_t bytes);

/* Reports why this worker is about to fail. The program should then end with an exit code other than 0. */
int ddprun_error(ddprun_worker* worker, int kind, const char* message);

/* Returns 1 if the program must save now and end with DDPRUN_REQUEUE. Call this once after each step, equally often on every
 * rank. After a stop request, the function returns 1 at the same call on all ranks. Without a stop request it returns 0
 * immediately. */
int ddprun_should_stop(ddprun_worker* worker);

/* Sends the newest progress if it was not sent yet, closes the channel and frees `worker`. */
void ddprun_goodbye(ddprun_worker* worker);

#ifdef __cplusplus
}
#endif

#endif
