// What one rank sees of a run's checkpoints: those of the run directory, and copies on its node's own disk. A step may be there
// several times, and copies of one step may differ (of a training that went on otherwise). Each is judged when it is first
// asked about, by its manifest and its files' lengths; what else is wrong shows when it is loaded (mark()). Used by resume.cpp;
// whoever writes checkpoints asks for the same places.
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
  std::filesystem::path local_copies{};  // trainer/checkpoint/local_copies.hpp: of this run on this machine; empty: none
  bool of_node = false;                  // this process looks after its node's disk: one of each node
  std::filesystem::path run_file{};      // who the run is (trainer/state/run_identity.hpp); empty: that is kept nowhere
};

// Those of a run with this config. `layout.root` is absolute.
CheckpointPlaces checkpoint_places(const RunLayout& layout, const TrainConfig& config, bool of_node);

class VisibleCheckpoints {
 public:
  // Throws std::system_error when the run directory's can't be listed: nobody could tell whether there are any.
  explicit VisibleCheckpoints(const CheckpointPlaces& places);

  struct Copy {
    Candidate candidate{};
    bool local = false;
    bool judged = false;
  };

  // Why copies on this node's disk can't be listed, which then count as not there; empty when they can.
  const std::string& trouble() const { return trouble_; }

  // The newest valid one that `counts`; null when there is none.
  const Copy* newest_valid(const std::function<bool(const Copy&)>& counts);
  // The one to read; null when this rank has none of that content.
  const Copy* find(std::int64_t step, const std::string& content);

  // Reads the run directory's of that content, unless that is what was `loaded`, and finds out whether it could be.
  void verify_shared(std::int64_t step, const std::string& content, const std::filesystem::path& loaded);
  // That one can't be loaded, for that reason.
  void mark(const std::filesystem::path& checkpoint, const std::string& problem);

  // All, judged or not.
  const std::vector<Copy>& listed() const { return copies_; }
  // All of one kind or of both, newest first, judged.
  enum class Which { kRunDirectory, kLocal, kAll };
  std::vector<Copy> judged(Which which);

 private:
  void add(const std::filesystem::path& folder, bool local);
  void add_local(const std::filesystem::path& copies);
  static void judge(Copy& copy);

  std::vector<Copy> copies_;  // newest first, of one step the local ones first
  std::string trouble_;
};

}  // namespace ddprun::trainer
