// The connection of a worker to its job: the worker's rank and the process group of all ranks. A Job reports progress, stops at
// the same step on all ranks, and forms a new process group after the loss of a worker.
//
// Under ddprun a lost worker is replaced while the other workers keep their state. Job::run() calls the training loop again,
// and no finished step is lost. The same program also trains under torchrun, srun, mpirun or a shell. It then reads RANK,
// WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or the variables of Slurm, Open MPI and PMIx. In these environments the loss of a
// worker ends the other workers, and the next invocation resumes from the newest checkpoint. If none of these variables is
// set, the job has one worker.
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
  enum class Device { kAuto, kCpu, kCuda };  // kAuto: the GPU whose index is the local rank, or the CPU if there is no GPU
  Device device = Device::kAuto;
  std::chrono::milliseconds timeout{600'000};  // maximum duration of one collective
};

// Create one object per process. Create it in main(), before any other thread and any tensor, since it handles SIGTERM, SIGINT
// and SIGHUP and initializes CUDA. Only the training thread may use this class.
class Job {
 public:
  // `program` is a name and version to show to users, such as "myloop 1.0". The constructor does not wait for other ranks.
  // Throws ddprun::UsageError if an environment variable is invalid, or if the requested GPU does not exist.
  explicit Job(std::string program, const JobOptions& options = {});
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const;
  int local_rank() const;
  int world() const;  // number of ranks
  c10::Device device() const;

  // Connects to the other ranks and calls `train` with the group of all ranks. Before the call all ranks get the same state.
  // After the loss of a worker, this is the state of the survivors. Otherwise it is the newest checkpoint of any rank, or if
  // there is no checkpoint, the initial state of rank 0.
  //
  // `train` must return when Group::next_step() returns false, or earlier at the same step on all ranks. After the loss of a
  // worker, `train` is called again and must continue from the current `state`. Objects that `train` creates from the group,
  // such as DataParallel, must not outlive the call.
  //
  // At the end rank 0 saves the state if it is not saved yet, and all ranks wait until the save has ended. Returns the exit
  // code for main(): 0, or 85 after a stop request. If training fails, the process exits inside this call, with a message on
  // stderr and an exit code of docs/exit-codes.md. The call does not return then, because destructors could wait for lost
  // workers.
  int run(State& state, Checkpointing& checkpoints, const std::function<void(Group&)>& train);
  int run(State& state, const std::function<void(Group&)>& train);

  struct Impl;  // defined in the library

 private:
  std::unique_ptr<Impl> impl_;
};

// The ranks that train together until one of them is lost. After the loss of a rank, each call that communicates throws an
// exception. Do not catch this exception: Job::run() handles it. Only the training thread may use this class.
class Group {
 public:
  int rank() const;
  int world() const;
  // The process group of these ranks. It is null if there is only one rank.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const;

  // Call this before each step. Returns true if another step follows, and false after `total` steps. After a stop request
  // (SIGTERM), the function returns false at the same step on all ranks. It also reports the finished step to the agent, a few
  // times per second, and saves a checkpoint if a save is due.
  bool next_step(std::int64_t total);

  // Seeds LibTorch's default generator for this step and rank. A step that is repeated then uses the same random numbers
  // again.
  void seed_step(std::uint64_t seed) const;

  // Sets a metric of the newest finished step: "loss", "lr", "samples_per_s" or any other name. ddprun shows the values of rank
  // 0 only. Call this before next_step(), which sends the value. This call is cheap, since it only stores the value.
  void figure(const std::string& name, double value);

  // Replaces each value by its sum over all ranks. This call is collective. Do not call it between the last gradient sum of a
  // step and State::update().
  void sum(std::span<double> values) const;

  struct Impl;  // defined in the library
  explicit Group(Impl& impl) : impl_(impl) {}
  Impl& impl() const { return impl_; }

 private:
  Impl& impl_;
};

}  // namespace ddprun
