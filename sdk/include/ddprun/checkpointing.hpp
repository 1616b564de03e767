// Checkpoints of a ddprun::State on disk, as ddptrain's: published as a whole or not at all, with checksums, in safetensors.
// The folder has step-000000400/{manifest.json,model.safetensors,optimizer.safetensors} and `latest`.
//
// With ddprun::Job it is given to Job::run(), which loads the newest and saves when one is due. Without: load() on every rank,
// save() or save_if_due() on one of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

namespace ddprun {

class State;

struct CheckpointOptions {
  std::int64_t every_steps = 0;  // a save is due after each multiple of this; 0: never, but Job::run() saves at its end
  std::int64_t keep = 3;         // so many of the newest stay; at least 1
  bool background = true;        // written by a thread from a copy in host memory, while training continues
};

// The training thread's alone; its own thread is no concern of the caller's.
class Checkpointing {
 public:
  // Changes nothing yet. One training has one folder. Throws ddprun::UsageError for options that can't be.
  explicit Checkpointing(std::filesystem::path folder, CheckpointOptions options = {});
  ~Checkpointing();  // waits for a save in the background
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  // The newest valid one into `state`; false where there is none, and the state is untouched. One whose checksums don't hold is
  // passed over with a line on stderr. Throws ddprun::BadCheckpointError when there are checkpoints and none is valid, and
  // ddprun::UsageError when it is of another model or optimizer: `state` may have some of its weights then, and is of no more
  // use. On every rank; no exchange.
  bool load(State& state);

  // For one rank. Published when it returns; a state that is published already costs nothing. Waits for a save in the
  // background first. Throws std::system_error (disk full), ddprun::DivergedError for weights that are NaN or infinite, and
  // ddprun::SupersededError when another process has begun to save here since.
  void save(const State& state);
  // For the same rank, after each step: saves if `every_steps` says so, in the background where that is asked for. A save that
  // fails is a line on stderr, and training continues; what else save() throws is thrown by the next call.
  void save_if_due(const State& state);

  struct Impl;  // of the library
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
