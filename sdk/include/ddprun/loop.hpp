// The parts of ddptrain for a training loop and main() of your own. Each can be used without the others:
//
//   State                a model, its optimizer and the number of finished steps
//   DataParallel         gradients summed over the ranks
//   DistributedSampler   which samples a rank takes in which step
//   Checkpointing        checkpoints on disk
//   Job, Group           rank, progress, stop at one step, live recovery: the worker channel; torchrun and MPI too
//
// share/ddprun/loop of an installation is a complete program, explained in docs/own-worker.md. Until version 1.0 these headers
// change with each version.
#pragma once

// IWYU pragma: begin_exports
#include "common/base/error.hpp"
#include "ddprun/checkpointing.hpp"
#include "ddprun/data_parallel.hpp"
#include "ddprun/distributed_sampler.hpp"
#include "ddprun/job.hpp"
#include "ddprun/state.hpp"
// IWYU pragma: end_exports
