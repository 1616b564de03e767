// A worker's place in its job: which rank it is, the group of all ranks, progress, stopping at one step, and the next group
// when a worker was lost.
//
// Under ddprun a lost worker is replaced while the others keep their state: Job::run() calls the loop again, and no step is
// lost. Under torchrun, srun, mpirun or a shell (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or what Slurm, Open MPI and PMIx
// set) the same program trains as well; there a lost worker ends the others, and whoever starts them again starts them from the
// newest checkpoint. Without any of these variables it is a job of one.
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
  enum class Device { kAuto, kCpu, kCuda };  // auto: the GPU of this local rank where there is one
  Device device = Device::kAuto;
  std::chrono::milliseconds timeout{600'000};  // of an exchange between ranks
};

// One for a process, made in main() before any other thread and any tensor: it takes SIGTERM, SIGINT and SIGHUP for itself, and
// opens CUDA. The training thread's alone.
class Job {
 public:
  // `program`: its name and version, for people ("myloop 1.0"). Waits for nobody. Throws ddprun::UsageError for an environment
  // that makes no sense, naming the variable, and where a GPU is asked for that is not there.
  explicit Job(std::string program, const JobOptions& options = {});
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int rank() const;
  int local_rank() const;
  int world() const;  // ranks
  c10::Device device() const;

  // Meets the other ranks and calls `train` with their group. All ranks hold the same state by then: that of survivors of a
  // loss, else the newest checkpoint that any rank has, else rank 0's as it is. `train` returns when Group::next_step() is
  // false, or earlier on all ranks at the same step. It is called again after a loss, from the state that was reached, and
  // whatever it has made of the group (DataParallel) has to end with it.
  //
  // Afterwards rank 0 saves what is not saved, and all wait for that. Returns main()'s exit code: 0, or 85 when the job was
  // told to stop. When training fails, the process ends here, with a line on stderr and a code of docs/exit-codes.md: peers
  // that are lost would make destructors wait.
  int run(State& state, Checkpointing& checkpoints, const std::function<void(Group&)>& train);
  int run(State& state, const std::function<void(Group&)>& train);

  struct Impl;  // of the library

 private:
  std::unique_ptr<Impl> impl_;
};

// The ranks that train together, until one of them is lost; then any call that exchanges throws what Job::run() catches. Let it
// pass. The training thread's alone.
class Group {
 public:
  int rank() const;
  int world() const;
  // Null in a world of one.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const;

  // Before each step: whether there is one more. False after `total` steps, and when the job is told to stop (SIGTERM), then at
  // the same step on all ranks. Tells the agent of the step that is finished, a few times a second, and saves if that is due.
  bool next_step(std::int64_t total);

  // Seeds LibTorch's default generator for this step and rank, so that a step that is made again draws the same.
  void seed_step(std::uint64_t seed) const;

  // A number of the newest finished step: "loss", "lr", "samples_per_s", or a name of yours. Only rank 0's are shown; it goes
  // with the next progress that is sent, so call it before next_step(). Cheap.
  void figure(const std::string& name, double value);

  // Replaces each value by its sum over all ranks. Collective. Not between the last exchange of a step and State::update().
  void sum(std::span<double> values) const;

  struct Impl;  // of the library
  explicit Group(Impl& impl) : impl_(impl) {}
  Impl& impl() const { return impl_; }

 private:
  Impl& impl_;
};

}  // namespace ddprun
