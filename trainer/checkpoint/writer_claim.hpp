// Who may publish in a checkpoints folder. The run directory's lock keeps two jobs apart; this keeps apart the writers that one
// run has over time: rank 0 of each round claims the folder when it starts, and an earlier one that is not quite dead (stopped,
// swapped out, on a machine that was given up) can then publish no more.
//
// Note: no lock is needed between the last check and the rename. A new writer first writes its claim and then takes every
// temporary folder away; so the rename of an old writer that checked before the claim finds its folder gone, or came before
// anybody looked for checkpoints.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>

namespace ddprun::trainer {

class WriterClaim {
 public:
  // Later ones have the higher term (of the run directory's lock), and within it the higher restart count.
  struct Generation {
    std::int64_t term = 0;
    std::int64_t restart = 0;
    auto operator<=>(const Generation&) const = default;
  };
  // For whoever has no lock of a run directory: later than the claim that is there. Throws std::system_error when it can't be
  // read.
  static Generation after_the_last(const std::filesystem::path& checkpoints_dir);

  // Changes nothing yet.
  WriterClaim(std::filesystem::path checkpoints_dir, Generation generation);

  // Makes the folder and the claim, takes leftovers of earlier writers away and returns why some stay (empty: none do). Throws
  // SupersededError (common/base/error.hpp) when a later generation has claimed it, std::system_error when it can't be written.
  std::string take();

  // Returns while the claim is ours, and makes it when it was never made or was deleted with everything else. Throws
  // SupersededError when it is another's, std::system_error when it can't be read.
  void check();
  // For a second writer in the same round, such as a rank whose data fails: also returns while the claim is that of another
  // process of this generation. Then neither of the two ends the other, and both publish whole checkpoints.
  void check_generation();

 private:
  std::filesystem::path checkpoints_dir_;
  std::filesystem::path file_;
  Generation generation_;
  std::string text_;
  bool taken_ = false;
};

}  // namespace ddprun::trainer
