// Checkpoints of a ddprun::State on disk, in ddptrain's format: safetensors with checksums. A checkpoint becomes visible only
// when it is complete. The folder contains checkpoints such as
// step-000000400/{manifest.json,model.safetensors,optimizer.safetensors}, and the link `latest`.
//
// With ddprun::Job, pass the Checkpointing object to Job::run(). This function loads the newest checkpoint, and saves when a
// save is due. Without Job, call load() on every rank, and save() or save_if_due() on one rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

namespace ddprun {

class State;

struct CheckpointOptions {
  std::int64_t every_steps = 0;  // interval of saves in steps; if 0, only Job::run() saves, at its end
  std::int64_t keep = 3;         // number of newest checkpoints to keep; at least 1
  bool background = true;        // if true, a thread writes a copy of the state while training continues
};

// Only the training thread may use this class. For saves in the background, the class creates another thread.
class Checkpointing {
 public:
  // The constructor changes nothing on disk. Each training run needs its own folder. Throws ddprun::UsageError if an option is
  // invalid.
  explicit Checkpointing(std::filesystem::path folder, CheckpointOptions options = {});
  ~Checkpointing();  // waits until a save in the background has ended
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  // Loads the newest valid checkpoint into `state`. Call this on every rank. The ranks do not communicate. If there is no
  // checkpoint, load() returns false and leaves `state` unchanged. A checkpoint with a wrong checksum is skipped and reported
  // on stderr. Throws ddprun::BadCheckpointError if there are checkpoints but none is valid. Throws ddprun::UsageError if the
  // checkpoint is of a different model or optimizer. After this error `state` may have some weights of the checkpoint and must
  // not be used.
  bool load(State& state);

  // Saves `state`. Call this on one rank. When the call returns, the checkpoint is complete on disk. If a save runs in the
  // background, the call first waits for it. If this state is already on disk, nothing is written. Throws std::system_error
  // (for example, if the disk is full) and ddprun::DivergedError if a weight is NaN or infinite. Throws ddprun::SupersededError
  // if another process has started to save in this folder.
  void save(const State& state);
  // Saves `state` if its step is a multiple of `every_steps`. Call this after each step, on the same rank as save(). The save
  // runs in the background if CheckpointOptions::background is true. If a save fails, this is reported on stderr, and training
  // continues. Other errors of save() are thrown by the next call.
  void save_if_due(const State& state);

  struct Impl;  // defined in the library
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
