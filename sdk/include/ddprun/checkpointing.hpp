// Checkpoints of a ddprun::State on disk, in ddptrain's format: safetensors with checksums. A checkpoint is published as a
// whole or not at all. The folder has step-000000400/{manifest.json,model.safetensors,optimizer.safetensors} and `latest`.
//
// With ddprun::Job, pass the object to Job::run(), which loads the newest checkpoint and saves when one is due. Without Job,
// call load() on every rank, and save() or save_if_due() on one rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

namespace ddprun {

class State;

struct CheckpointOptions {
  std::int64_t every_steps = 0;  // a save is due at each multiple of this; 0: never, but Job::run() saves at its end
  std::int64_t keep = 3;         // number of newest checkpoints to keep; at least 1
  bool background = true;        // written by a thread from a copy in host memory, while training continues
};

// For the training thread only. The class has a thread of its own, which needs no care of the caller.
class Checkpointing {
 public:
  // The constructor changes nothing on disk. Each training run needs a folder of its own. Throws ddprun::UsageError for invalid
  // options.
  explicit Checkpointing(std::filesystem::path folder, CheckpointOptions options = {});
  ~Checkpointing();  // waits for a save in the background
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  // Loads the newest valid checkpoint into `state`. Returns false, with `state` untouched, if there is no checkpoint. A
  // checkpoint with a wrong checksum is skipped and reported on stderr. Throws ddprun::BadCheckpointError if no checkpoint is
  // valid. Throws ddprun::UsageError if the checkpoint has another model or optimizer. `state` may then hold some of its
  // weights and must not be used. Call on every rank; nothing is exchanged.
  bool load(State& state);

  // Call on one rank. The checkpoint is published when the call returns. If this state is published already, the call does
  // nothing. It first waits for a save in the background. Throws std::system_error (disk full), ddprun::DivergedError for
  // weights that are NaN or infinite, and ddprun::SupersededError if another process has started to save in this folder.
  void save(const State& state);
  // Call after each step on the same rank as save(). Saves when `every_steps` requires it, in the background if the options ask
  // for that. A failed save is reported on stderr, and training continues. The next call throws the other errors of save().
  void save_if_due(const State& state);

  struct Impl;  // defined in the library
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
