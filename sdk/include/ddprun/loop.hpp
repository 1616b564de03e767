// The parts of ddptrain, for a program with its own training loop and main(). Each part can be used without the others:
//
//   State                a model, its optimizer and the number of finished steps
//   DataParallel         gradients summed over the ranks
//   DistributedSampler   which samples a rank takes in which step
//   Checkpointing        checkpoints on disk
//   Job, Group           rank, progress, stop at the same step, live recovery; also under torchrun and MPI
//
// An installation contains a complete program in share/ddprun/loop, which docs/own-worker.md explains. Until version 1.0 these
// headers can change with each version.
#pragma once

// IWYU pragma: begin_exports
#include "common/base/error.hpp"
#include "ddprun/checkpointing.hpp"
#include "ddprun/data_parallel.hpp"
#include "ddprun/distributed_sampler.hpp"
#include "ddprun/job.hpp"
#include "ddprun/state.hpp"
// IWYU pragma: end_exports
