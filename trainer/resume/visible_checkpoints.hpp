// The checkpoints of a run that one rank can see: those of the run directory, and copies on its node's disk. A step may have
// several copies, and these may differ if the training took another course. A copy is judged when it is first needed, by its
// manifest and the lengths of its files. Other damage shows when it is loaded (mark()). Used by resume.cpp; the writers of
// checkpoints use the same places.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "common/run_directory/run_directory.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

struct CheckpointPlaces {
  std::filesystem::path run_directory;   // its folder of checkpoints
  std::filesystem::path local_copies{};  // this run's copies on this machine (trainer/checkpoint/local_copies.hpp); empty: none
  bool of_node = false;                  // this process manages its node's disk; true on one process of each node
  std::filesystem::path run_file{};      // the run's identity (trainer/state/run_identity.hpp); empty: it is not stored
};

// The places of a run with this config. `layout.root` is absolute.
CheckpointPlaces checkpoint_places(const RunLayout& layout, const TrainConfig& config, bool of_node);

class VisibleCheckpoints {
 public:
  // Throws std::system_error if the run directory's checkpoints cannot be listed: then no rank would know whether any exist.
  explicit VisibleCheckpoints(const CheckpointPlaces& places);

  struct Copy {
    Candidate candidate{};
    bool local = false;
    bool judged = false;
  };

  // Why copies on this node's disk cannot be listed; they then count as missing. Empty if they can.
  const std::string& trouble() const { return trouble_; }

  // The newest valid copy for which `counts` is true; null if there is none.
  const Copy* newest_valid(const std::function<bool(const Copy&)>& counts);
  // The copy to read; null if this rank has none with that content.
  const Copy* find(std::int64_t step, const std::string& content);

  // Verifies the run directory's copy with that content by reading it, unless that copy is the one that was `loaded`.
  void verify_shared(std::int64_t step, const std::string& content, const std::filesystem::path& loaded);
  // Marks a checkpoint as bad because it could not be loaded.
  void mark(const std::filesystem::path& checkpoint, const std::string& problem);

  // All copies, judged or not.
  const std::vector<Copy>& listed() const { return copies_; }
  // All copies of one kind or of both, judged, newest first.
  enum class Which { kRunDirectory, kLocal, kAll };
  std::vector<Copy> judged(Which which);

 private:
  void add(const std::filesystem::path& folder, bool local);
  void add_local(const std::filesystem::path& copies);
  static void judge(Copy& copy);

  std::vector<Copy> copies_;  // newest first; for one step the local copies first
  std::string trouble_;
};

}  // namespace ddprun::trainer
