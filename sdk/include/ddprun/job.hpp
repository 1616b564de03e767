// A worker's place in its job: its rank and the group of all ranks. It reports progress, stops at the same step on all ranks,
// and forms the next group after the loss of a worker.
//
// Under ddprun a lost worker is replaced while the others keep their state: Job::run() calls the loop again, and no step is
// lost. The same program also trains under torchrun, srun, mpirun or a shell. It reads RANK, WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT, or the variables of Slurm, Open MPI and PMIx. There a lost worker ends the others, and the next start continues
// from the newest checkpoint. Without any of these variables the job has one worker.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace ddprun {

class Checkpointing;
class Group;
class State;

struct JobOptions {
  enum class Device { kAuto, kCpu, kCuda };  // kAuto: the GPU of this local rank if it has one
  Device device = Device::kAuto;
  std::chrono::milliseconds timeout{600'000};  // limit of one exchange between ranks
};

// One object for each process. Create it in main() before any other thread and any tensor: it takes over SIGTERM, SIGINT and
// SIGHUP, and opens CUDA. For the training thread only.
class Job {
 public:
  // `program`: name and version for display ("myloop 1.0"). Does not wait for other ranks. Throws ddprun::UsageError for an
  // invalid environment, with the name of the variable, and if a requested GPU does not exist.
  explicit Job(std::string program, const JobOptions& options = {});
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const;
  int local_rank() const;
  int world() const;  // ranks
  c10::Device device() const;

  // Meets the other ranks and calls `train` with their group. All ranks hold the same state by then. The state is that of the
  // survivors of a loss, else the newest checkpoint of any rank, else the initial state of rank 0. `train` returns when
  // Group::next_step() is false, or earlier at the same step on all ranks. After a loss it is called again with the state that
  // was reached. Objects that it made from the group, such as DataParallel, must not outlive the call.
  //
  // At the end rank 0 saves a state that is not saved yet, and all ranks wait for that. Returns the exit code for main(): 0, or
  // 85 if the job was asked to stop. If training fails, the process ends inside this call, with a line on stderr and a code of
  // docs/exit-codes.md. It does not return, since destructors would wait for lost peers.
  int run(State& state, Checkpointing& checkpoints, const std::function<void(Group&)>& train);
  int run(State& state, const std::function<void(Group&)>& train);

  struct Impl;  // defined in the library

 private:
  std::unique_ptr<Impl> impl_;
};

// The ranks that train together until one of them is lost. From then on each call that exchanges data throws an exception for
// Job::run(): do not catch it. For the training thread only.
class Group {
 public:
  int rank() const;
  int world() const;
  // Null in a world of one.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const;

  // Call before each step. Returns whether another step follows. Returns false after `total` steps, and after a stop request
  // (SIGTERM), at the same step on all ranks. Reports the finished step to the agent a few times a second, and saves if a
  // checkpoint is due.
  bool next_step(std::int64_t total);

  // Seeds LibTorch's default generator for this step and rank, so that a repeated step draws the same numbers.
  void seed_step(std::uint64_t seed) const;

  // Sets a metric of the newest finished step: "loss", "lr", "samples_per_s" or a name of your own. Only rank 0's values are
  // shown. The next progress message carries the value, so call this before next_step(). Cheap.
  void figure(const std::string& name, double value);

  // Replaces each value by its sum over all ranks. Collective. Do not call it between the last exchange of a step and
  // State::update().
  void sum(std::span<double> values) const;

  struct Impl;  // defined in the library
  explicit Group(Impl& impl) : impl_(impl) {}
  Impl& impl() const { return impl_; }

 private:
  Impl& impl_;
};

}  // namespace ddprun
