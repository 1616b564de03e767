// The parts of ddptrain for a training loop of your own, with a main() of your own. Each can be used without the others:
//
//   State                a model, its optimizer and the finished steps: what must survive
//   DataParallel         gradients summed over the ranks
//   DistributedSampler   which samples a rank takes in which step
//   Checkpointing        checkpoints on disk
//   Job, Group           rank, progress, stopping at one step, live recovery: the worker channel; torchrun and MPI too
//
// share/ddprun/loop of an installation is a whole program; docs/own-worker.md has it. Until version 1.0 these headers change
// with each version.
#pragma once

// IWYU pragma: begin_exports
#include "common/base/error.hpp"
#include "ddprun/checkpointing.hpp"
#include "ddprun/data_parallel.hpp"
#include "ddprun/distributed_sampler.hpp"
#include "ddprun/job.hpp"
#include "ddprun/state.hpp"
// IWYU pragma: end_exports
