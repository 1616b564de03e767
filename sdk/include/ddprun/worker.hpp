// A worker program of your own: a Task (the model, its loss, what an evaluation measures), a Source (where samples come from),
// TaskKeys (what its train.json may say beside ours), and one line, DDPRUN_WORKER, that makes the program. It has all that
// ddptrain has: its command line and train.json, the agent, restarts, exact resume, live recovery, checkpoints and metrics.
// sdk/example has a whole one; `ddprun init cpp FOLDER` writes another to begin with.
//
// Until version 1.0 these headers change with each version: build a worker with the ddprun that starts it. Both sides check.
#pragma once

// IWYU pragma: begin_exports
#include "common/base/error.hpp"
#include "common/config/task_keys.hpp"
#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/life/subject.hpp"
#include "trainer/life/worker.hpp"
#include "trainer/task/figures.hpp"
#include "trainer/task/task.hpp"
// IWYU pragma: end_exports

// The main() of a program that trains this Subject (trainer/life/subject.hpp): once, outside of all namespaces.
#define DDPRUN_WORKER(...)                                                \
  int main(int argc, char** argv) {                                       \
    return ::ddprun::trainer::run_worker_main(argc, argv, (__VA_ARGS__)); \
  }
