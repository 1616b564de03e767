/* The worker channel for programs in C, and in any language that can call C. A program reports its progress, checkpoints and
 * errors, and receives the request to save and stop. The library libddprun_channel needs neither LibTorch nor other parts of
 * ddprun. docs/worker-channel.md describes the effect of each message.
 *
 *   ddprun_worker *job = ddprun_hello("myloop 1.0");         // NULL outside a job: all calls do nothing then
 *   for (int64_t step = 1; step <= total; ++step) {
 *     ...
 *     ddprun_figure(job, "loss", loss);
 *     ddprun_progress(job, step, total, 0, 0, samples);      // cheap enough for every step
 *     if (ddprun_should_stop(job)) { save(); return DDPRUN_REQUEUE; }
 *   }
 *   ddprun_goodbye(job);
 *
 * Any thread may call any function, but not after ddprun_goodbye(), and not in a signal handler. In a forked process the
 * functions do nothing. They print nothing. ddprun_should_stop() waits for the agent while a job stops. If the agent does not
 * read (it is stopped, for example), each call that sends a message waits up to 10 s, and calls of other threads wait for it.
 * Then the channel is closed. */
#ifndef DDPRUN_WORKER_H
#define DDPRUN_WORKER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDPRUN_CHANNEL_MAJOR 1
#define DDPRUN_CHANNEL_MINOR 4
#define DDPRUN_REQUEUE 85 /* the exit code of a program that has saved and asks to be run again */

typedef struct ddprun_worker ddprun_worker;

enum ddprun_phase {
  DDPRUN_STARTING = 0,
  DDPRUN_JOINING = 1,
  DDPRUN_RUNNING = 2,
  DDPRUN_SAVING = 3,
  DDPRUN_EVALUATING = 4,
  DDPRUN_DONE = 5
};

/* The effect on restarts: docs/worker-channel.md. */
enum ddprun_error_kind {
  DDPRUN_EXCEPTION = 0,
  DDPRUN_USAGE = 1, /* the config or the data is wrong: a restart does not help */
  DDPRUN_OUT_OF_MEMORY = 2,
  DDPRUN_LOST_PEER = 3, /* another rank failed first */
  DDPRUN_DIVERGED = 4,  /* a restart does not help */
  DDPRUN_CHECKPOINT = 5
};

/* Takes the channel from the environment, and sends the program's name and version. Returns NULL if this is not a worker of
 * ddprun. Call it once, early: programs that are started before may use the channel by mistake. */
ddprun_worker* ddprun_hello(const char* program);

/* All of these return 0, or -1 for an invalid argument: then nothing is sent. */

/* Enters a phase. ddprun_progress() enters the phase running by itself. Steps are counted over the whole job. */
int ddprun_enter(ddprun_worker* worker, int phase, int64_t step, int64_t epoch);

/* Sets a metric of the newest step: "loss", "lr", "samples_per_s", or any name. The next progress message carries it. Only rank
 * 0's values are shown. */
int ddprun_figure(ddprun_worker* worker, const char* name, double value);

/* Reports a finished step. Epochs count from 0. samples: of the whole job since its beginning. Unknown totals are 0. A message
 * is sent at most five times a second, and for the first and the last step. */
int ddprun_progress(ddprun_worker* worker, int64_t step, int64_t steps_total, int64_t epoch, int64_t epochs, int64_t samples);

/* Reports the seconds of a step on this rank. own: without waits for other ranks; waiting: those waits; data: the part of `own`
 * that it waited for its batch. Call it at every step on every rank, or not at all. ddprun then names the rank that delays the
 * others. A message is sent at most five times a second. */
int ddprun_step_time(ddprun_worker* worker, int64_t step, double own, double waiting, double data);

/* Reports a complete checkpoint. path may be NULL; seconds: how long the program paused for it. */
int ddprun_saved(ddprun_worker* worker, const char* path, int64_t step, double seconds, int64_t bytes);

/* Reports why this worker is about to fail; it should then end with an exit code other than 0. */
int ddprun_error(ddprun_worker* worker, int kind, const char* message);

/* Whether to save now and end with DDPRUN_REQUEUE. Call it once after each step, equally often on every rank. After a stop
 * request it returns 1 at the same call on all ranks. Until then it returns 0 and costs nothing. */
int ddprun_should_stop(ddprun_worker* worker);

/* Sends the last progress if it is unsent, closes the channel and frees the worker. */
void ddprun_goodbye(ddprun_worker* worker);

#ifdef __cplusplus
}
#endif

#endif
