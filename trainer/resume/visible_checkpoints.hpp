// The checkpoints that one rank can read: the checkpoints in the run directory, and the copies on its node's disk. Several
// copies of a step can exist. Their content differs if the step was trained more than once with different results. When a copy
// is first needed, its manifest and the lengths of its files are checked. This check is fast, but does not detect all damage.
// If the copy then cannot be loaded, the caller must call mark(). resume.cpp uses this class.
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
  std::filesystem::path run_directory;   // folder of checkpoints in the run directory
  std::filesystem::path local_copies{};  // folder of checkpoint copies on this node (local_copies.hpp); empty if not configured
  bool owns_node_disk = false;           // true in the one process per node that renames and removes the node's copies
  // File of the run's identity (trainer/state/run_identity.hpp). If the path is empty, no file is written.
  std::filesystem::path run_file{};
};

// Returns the folders and the file for a run with `config`. `layout.root` must be absolute.
CheckpointPlaces checkpoint_places(const RunLayout& layout, const TrainConfig& config, bool owns_node_disk);

class VisibleCheckpoints {
 public:
  // Throws std::system_error if the checkpoints in the run directory cannot be listed. Without this error, the run would start
  // at step 0 only because its checkpoints are temporarily unreadable.
  explicit VisibleCheckpoints(const CheckpointPlaces& places);

  struct Copy {
    Candidate candidate{};
    bool local = false;
    bool judged = false;
  };

  // Returns the error message if the copies on this node's disk could not be listed. Otherwise the message is empty. After an
  // error these copies are ignored.
  const std::string& list_error() const { return list_error_; }

  // Returns the newest valid copy for which `counts` returns true; null if there is none.
  const Copy* newest_valid(const std::function<bool(const Copy&)>& counts);
  // Returns a copy of the checkpoint of `step` with the checksum `content`, or null if this rank has none. A copy on the
  // node's disk is preferred.
  const Copy* find(std::int64_t step, const std::string& content);

  // Reads the copy of `step` in the run directory and verifies its checksums. Does nothing if the path of that copy is
  // `loaded`, since loading has already verified it.
  void verify_shared(std::int64_t step, const std::string& content, const std::filesystem::path& loaded);
  // Marks a checkpoint as invalid because it could not be loaded.
  void mark(const std::filesystem::path& checkpoint, const std::string& problem);

  // Returns all copies, including those that were not checked yet.
  const std::vector<Copy>& listed() const { return copies_; }
  // Checks and returns the copies in the run directory, the copies on the node's disk, or all copies, newest first.
  enum class Which { kRunDirectory, kLocal, kAll };
  std::vector<Copy> judged(Which which);

 private:
  void add(const std::filesystem::path& folder, bool local);
  void add_local(const std::filesystem::path& copies);
  static void judge(Copy& copy);

  std::vector<Copy> copies_;  // newest step first; for equal steps, copies on the node's disk first
  std::string list_error_;
};

}  // namespace ddprun::trainer
