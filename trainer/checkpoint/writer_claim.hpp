// Decides which process may publish in a checkpoints folder. The run directory's lock separates two jobs. The claim separates
// the successive writers of one run. Rank 0 of each round claims the folder when it starts. An earlier rank 0 may still be
// alive (stopped, swapped out, on a machine that was given up). After the claim it can publish no more.
//
// Note: no lock is needed between the last check and the rename. A new writer first writes its claim and then removes every
// temporary folder. Suppose that an old writer checked before the claim was written. Either its rename fails because its folder
// is gone, or it came before the new writer looked for checkpoints.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>

namespace ddprun::trainer {

class WriterClaim {
 public:
  // A later writer has a higher term (of the run directory's lock), or the same term and a higher restart count.
  struct Generation {
    std::int64_t term = 0;
    std::int64_t restart = 0;
    auto operator<=>(const Generation&) const = default;
  };
  // For a process without the lock of a run directory. Returns a generation that is later than the existing claim. Throws
  // std::system_error if the claim can't be read.
  static Generation after_the_last(const std::filesystem::path& checkpoints_dir);

  // Writes nothing yet.
  WriterClaim(std::filesystem::path checkpoints_dir, Generation generation);

  // Creates the folder and the claim, and removes leftovers of earlier writers. Returns the reasons for leftovers that stay
  // (empty: none stay). Throws SupersededError (common/base/error.hpp) if a later generation has claimed the folder, and
  // std::system_error if the claim can't be written.
  std::string take();

  // Returns if the claim is ours. Writes it first if it was never written or was deleted. Throws SupersededError if another
  // process holds the claim, and std::system_error if it can't be read.
  void check();
  // For a second writer in the same round, such as a rank whose data fails. Also returns if another process of this generation
  // holds the claim. Then neither of the two stops the other, and both publish whole checkpoints.
  void check_generation();

 private:
  std::filesystem::path checkpoints_dir_;
  std::filesystem::path file_;
  Generation generation_;
  std::string text_;
  bool taken_ = false;
};

}  // namespace ddprun::trainer
