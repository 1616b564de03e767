// Decides which process may publish checkpoints in a folder. The lock on the run directory excludes a second job. The claim, a
// file in the folder, distinguishes the successive writers of one job. Rank 0 writes the claim each time the workers start.
// The process that was rank 0 before may still exist: stopped, swapped out, or on a machine that the job no longer uses. After
// the new claim, this process can no longer publish.
//
// The old writer needs no lock between its last check of the claim and its rename, although a new claim may be written in
// between. A new writer first writes its claim, then removes every temporary folder, and only then lists the checkpoints. If
// the old writer renames after that, its folder no longer exists, and the rename fails. If it renames earlier, the new writer
// finds the checkpoint.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>

namespace ddprun::trainer {

class WriterClaim {
 public:
  // A later writer has a higher term, or the same term and a higher restart count. The term increases each time that a job
  // locks the run directory.
  struct Generation {
    std::int64_t term = 0;
    std::int64_t restart = 0;
    auto operator<=>(const Generation&) const = default;
  };
  // Returns a generation that is later than the one in the existing claim, for a process that does not hold the run directory's
  // lock. Throws std::system_error if the claim can't be read.
  static Generation next_generation(const std::filesystem::path& checkpoints_dir);

  // The constructor writes nothing to the disk.
  WriterClaim(std::filesystem::path checkpoints_dir, Generation generation);

  // Creates the folder and the claim, and removes temporary files of earlier writers. Returns a message about the files that
  // could not be removed. The message is empty if all were removed. Throws SupersededError (common/base/error.hpp) if a later
  // generation has claimed the folder, and std::system_error if the claim can't be written.
  std::string take();

  // Checks that the claim on disk is this writer's claim. Calls take() first if take() was not called yet, or if the claim was
  // deleted. Throws SupersededError if another process has claimed the folder, and std::system_error if the claim can't be
  // read.
  void check();
  // Works like check(), for a rank that saves its own checkpoint in addition to the usual writer. For example, a rank does
  // this if it cannot read its data and must stop. This function also accepts the claim of another process of the same
  // generation. Then both processes publish complete checkpoints, and neither stops the other.
  void check_generation();

 private:
  std::filesystem::path checkpoints_dir_;
  std::filesystem::path file_;
  Generation generation_;
  std::string text_;
  bool taken_ = false;
};

}  // namespace ddprun::trainer
