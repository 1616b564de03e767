// Include this header in a custom worker program. Such a program has four parts: a Task (the model, its loss, the metrics of an
// evaluation), a Source (the samples), TaskKeys (additional keys of train.json) and the macro DDPRUN_WORKER, which defines
// main(). The program has all features of ddptrain: command line, train.json, agent, restarts, exact resume, live recovery,
// checkpoints and metrics. sdk/example has a complete program. `ddprun init cpp FOLDER` creates another program as a starting
// point.
//
// Until version 1.0 these headers can change with each version. Build a worker with the same version of ddprun that starts the
// worker. Both programs check the version.
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

// Defines main() of a training program. The arguments of the macro are a Subject, which describes the task and its data
// (trainer/life/subject.hpp). Use this macro once, outside all namespaces.
#define DDPRUN_WORKER(...)                                                \
  int main(int argc, char** argv) {                                       \
    return ::ddprun::trainer::run_worker_main(argc, argv, (__VA_ARGS__)); \
  }
