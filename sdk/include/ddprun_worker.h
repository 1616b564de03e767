/* The worker channel for programs in C, and in any language that can call C: how far the program is, what it has saved, why it
 * fails, and whether it is to save and stop now. libddprun_channel has it, and needs neither LibTorch nor anything else of
 * ddprun. docs/worker-channel.md tells what ddprun does with it.
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
 * Any thread may call any function, but none after ddprun_goodbye(), and none in a signal handler. In a process that the
 * program has forked they do nothing. Nothing is printed. ddprun_should_stop() waits for the agent while a job stops. If the
 * agent does not read (it is stopped, for example), each call that sends something waits up to 10 s, and calls of other threads
 * wait for it. After that the channel is given up. */
#ifndef DDPRUN_WORKER_H
#define DDPRUN_WORKER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDPRUN_CHANNEL_MAJOR 1
#define DDPRUN_CHANNEL_MINOR 4
#define DDPRUN_REQUEUE 85 /* the exit code of a program that has saved and wants to be run again */

typedef struct ddprun_worker ddprun_worker;

enum ddprun_phase {
  DDPRUN_STARTING = 0,
  DDPRUN_JOINING = 1,
  DDPRUN_RUNNING = 2,
  DDPRUN_SAVING = 3,
  DDPRUN_EVALUATING = 4,
  DDPRUN_DONE = 5
};

/* What restarts do: docs/worker-channel.md. */
enum ddprun_error_kind {
  DDPRUN_EXCEPTION = 0,
  DDPRUN_USAGE = 1, /* the config or the data is wrong: no restart mends it */
  DDPRUN_OUT_OF_MEMORY = 2,
  DDPRUN_LOST_PEER = 3, /* another rank is to blame */
  DDPRUN_DIVERGED = 4,  /* no restart mends it */
  DDPRUN_CHECKPOINT = 5
};

/* Takes the channel over from the environment, and says who speaks. NULL: this is no worker of ddprun. Call it once, early:
 * programs that are started before may take the channel for theirs. */
ddprun_worker* ddprun_hello(const char* program);

/* All of these return 0, or -1 where an argument can't be: then nothing is said. */

/* For phases other than running, which ddprun_progress() enters by itself. Steps count those of the whole job. */
int ddprun_enter(ddprun_worker* worker, int phase, int64_t step, int64_t epoch);

/* A number of the newest step, which goes with the next message: "loss", "lr", "samples_per_s", or any name. Only rank 0's are
 * shown. */
int ddprun_figure(ddprun_worker* worker, const char* name, double value);

/* That step is done. Epochs count from 0; samples are those of the whole job since its beginning. 0 for totals that are not
 * known. The agent hears of it at most five times a second, and of the first and the last step. */
int ddprun_progress(ddprun_worker* worker, int64_t step, int64_t steps_total, int64_t epoch, int64_t epochs, int64_t samples);

/* How long that step took here, in seconds, without what it waited for other ranks, and how long it waited for them. data: how
 * much of `own` it waited for its batch. To be called at every step on every rank, or not at all. ddprun then names the rank
 * that keeps the others waiting. The agent hears of it five times a second at most. */
int ddprun_step_time(ddprun_worker* worker, int64_t step, double own, double waiting, double data);

/* A checkpoint is complete. path may be NULL; seconds: how long the program stood still for it. */
int ddprun_saved(ddprun_worker* worker, const char* path, int64_t step, double seconds, int64_t bytes);

/* Why this worker is about to fail; it should then end with another exit code than 0. */
int ddprun_error(ddprun_worker* worker, int kind, const char* message);

/* Whether to save now and end with DDPRUN_REQUEUE. To be called once after each step, equally often on every rank. When the job
 * is told to stop, it is 1 after the same call on all ranks; until then it is 0 and costs nothing. */
int ddprun_should_stop(ddprun_worker* worker);

/* Sends what is unsent, closes the channel and frees the worker. */
void ddprun_goodbye(ddprun_worker* worker);

#ifdef __cplusplus
}
#endif

#endif
