// Checkpoints: save a training state so that a crash at any moment leaves a checkpoint that is whole.
//
// A writer can be killed at any system call. After a power cut the disk may have a file's name without its content. The disk
// may be full, and a bit may flip. A writer of an earlier round may wake up and write as well. A damaged checkpoint that looks
// whole is the worst outcome: training resumes with wrong numbers and without an error.
//
// Atomic publication. All content is on the disk before a rename gives it a name. That name is on the disk before an older
// checkpoint is removed.
//
//   .tmp-step-000000400-PID/    temporary folder on the same file system; its writer holds a flock on it
//     model.safetensors         written, fsync; then optimizer.safetensors and one file for each further role
//     manifest.json             written last, fsync
//   fsync of the folder, rename to step-000000400, fsync of checkpoints/
//   latest -> step-000000400    relative symbolic link, replaced by a rename; then fsync of checkpoints/
//   checkpoints that are not kept are removed
//
// A writer that is killed before the rename leaves only a temporary folder, which the next writer removes. The flock
// distinguishes it from the folder of a living writer, even if process ids are reused. `latest` may be old or missing: no
// choice of a checkpoint depends on it.
//
// Checksums. The manifest has the length and the XXH3-128 checksum of every other file, and one of itself. judge_checkpoint()
// reads the manifest and the lengths only; loading checks the content. We used to read every kept checkpoint at each start:
// with three of 89.5 MB, rank 0 read 447 MB. Now it reads 89.5 MB (docs/internals/decisions/checkpoint/read-once.md). The price
// is that damage in an older checkpoint shows only when that one is needed. XXH3 detects damage, not forgery.
//
// Pieces. A file has whole tensors or ranges of flat tensors: {"fc1.weight": {"shape": [512, 784], "begin": 200704}} is the
// second half of a matrix. So any number of ranks can read what any number has written (pieces.hpp). Nothing writes pieces yet:
// one rank has all tensors.
//
// Cost: the new checkpoint needs disk space next to all kept ones, and each save waits for fsync. Rank 0 writes it alone. On
// our disk several writers were slower: 1489 MB/s with one stream, 1361 with two, 1288 with four (one-writer.md, same folder).
//
// A checkpoint that is found to be bad is renamed and not deleted: set_aside() renames it to step-000000400.bad.
// trainer/resume/resume.cpp calls these functions and chooses the checkpoint of a resume.
// tests/trainer/checkpoint/crash_consistency_test.cpp injects an error and a kill at each file system call of a save.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/retention.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Small named numbers of a training state, such as "plateau.lr". A value may be infinite.
using StateValues = std::map<std::string, double>;

// A training from whose checkpoint another training began. Its checkpoints up to step `until` belong to the history of both.
struct EarlierRun {
  std::string id;  // empty: written by a version without identities
  std::int64_t until = 0;
  bool operator==(const EarlierRun&) const = default;
};

// All that a run needs to resume with the same numbers.
struct CheckpointState {
  std::int64_t step = 0;           // finished optimizer steps
  std::int64_t epoch = 0;          // epoch of the next step, counted from 0
  std::int64_t position = 0;       // samples of that epoch that are already used
  std::int64_t samples = 0;        // samples used since the run began
  bool finished = false;           // the config's last step is done
  std::int64_t total_steps = 0;    // length of the run by its config at the time of the save
  std::int64_t config_epochs = 0;  // epochs and max_steps of that config: a finished run continues when they grow
  std::int64_t config_max_steps = 0;
  int world_size = 1;
  std::int64_t micro_batch_size = 0;
  int intra_op_threads = 1;
  std::string cpu_class;  // at::get_cpu_capability(): decision 18
  std::string torch_version;
  std::string device;     // "cpu", or the name of the GPU; empty if an older version wrote the checkpoint
  std::string precision;  // trainer/models/precision.hpp; empty if an older version wrote the checkpoint
  std::uint64_t seed = 0;
  std::string config_digest;
  std::string run;  // identity of the training (trainer/state/run_identity.hpp); empty: written by a version without identities
  std::vector<EarlierRun> earlier{};     // trainings from which this one began, oldest first; in no file: empty after loading
  std::optional<FigureList> evaluation;  // evaluation after exactly this step; nullopt if there was none
  std::vector<std::vector<std::int64_t>>
      bucket_order;  // the Reducer's rebuilt buckets, as indices of parameters (decision 19); may be empty
  std::map<std::string, std::string> tied;  // other name of a parameter -> its name in `model`
  std::vector<NamedTensor> model;  // parameters and buffers; use names, since loading puts tensors of wider elements first
  std::vector<NamedTensor> optimizer;
  std::vector<NamedTensor> average;  // averages of the trained parameters (optimizer.ema); empty if the run keeps none
  StateValues values;
};

inline constexpr const char* kModelRole = "model";
inline constexpr const char* kOptimizerRole = "optimizer";
inline constexpr const char* kAverageRole = "average";

// The lists of tensors in a state, each with its role. The role names the file. Saving, loading, copying and the search for NaN
// iterate over this array. A new list of tensors needs one more line here.
template <typename State>  // CheckpointState or const CheckpointState
auto tensors_by_role(State& state) {
  return std::array{std::pair{kModelRole, &state.model}, std::pair{kOptimizerRole, &state.optimizer},
                    std::pair{kAverageRole, &state.average}};
}

struct SaveResult {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  std::string note;  // for the console: what could not be removed or linked, and why; empty if all went well
};

// Called when a save reaches a stage: "begun", "model-half" (middle of that file), "model-written", "optimizer-written",
// "average-written" if there is an average, "manifest-written", "renamed", "latest-moved". Also called with "writing" after
// each write of at most 64 MiB. An exception from the observer ends the save; nothing is published before "renamed". Tests
// inject faults here, and the trainer checks here whether another writer has superseded it.
using StageObserver = std::function<void(const char* stage)>;

// Publishes `state` as checkpoints_dir/step-%09d, points `latest` to it and removes the checkpoints that `retention` does not
// keep. It never removes the one just written. Checkpoints of another training stay, and `retention` does not count them.
//
// If that step of this run is already published and valid, its tensors stay. Its manifest is updated if the entries about the
// end of the run differ (finished, total_steps, config_*), or if it has no evaluation and `state` has one. The evaluation and
// the values are updated with them. If the published step belongs to another run, it is renamed to .superseded. If it is
// invalid, it is set aside.
//
// Throws std::system_error with the path (disk full, read-only). No half-written checkpoint is visible then, and older
// checkpoints are untouched. A folder has one writer: see writer_claim.hpp.
SaveResult save_checkpoint(const std::filesystem::path& checkpoints_dir, const CheckpointState& state,
                           const Retention& retention, const StageObserver& at_stage = {});

struct Candidate {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::string problem;  // why it is invalid; empty if the checks so far have found no problem
  std::string content;  // valid only: content_digest(), which is equal for copies of the same checkpoint
  std::string run{};    // valid only: CheckpointState::run
};

// All checkpoints of the folder by their names, newest first. Reads no file in them. Empty if the folder does not exist. Throws
// std::system_error if the folder can't be listed.
std::vector<Candidate> list_checkpoints(const std::filesystem::path& checkpoints_dir);
// Checks the manifest and the lengths of the files, and fills in the candidate, including its step. The content of the files is
// checked when they are loaded. Changes nothing on the disk.
void judge_checkpoint(Candidate& candidate);
// Does the same, and also reads every file to check its checksum.
void verify_checkpoint(Candidate& candidate);
// Lists all checkpoints of the folder and verifies each.
std::vector<Candidate> inspect_checkpoints(const std::filesystem::path& checkpoints_dir);

// Renames a bad checkpoint (step-000000400.bad, .bad-2, ...) and returns the new path. If `latest` pointed to it, `latest` then
// points to the newest other checkpoint. Without another one it is removed.
std::filesystem::path set_aside(const Candidate& bad);

// Renames a valid checkpoint that is not in the history of this run (step-000000400.superseded, ...). Returns the new path.
std::filesystem::path supersede(const std::filesystem::path& checkpoint);

// Points `latest` to this checkpoint unless it already does. A writer that was killed between its two renames leaves an old
// `latest`, and users remove the link. Throws std::system_error.
void mend_latest(const std::filesystem::path& checkpoint);

// Loads weights and buffers without the optimizer's state, and verifies all files. If the checkpoint has an average of a
// weight, the average replaces the weight, as in evaluations. Accepts a renamed checkpoint (step-000000400.superseded). Throws
// UsageError.
CheckpointState load_weights(const std::filesystem::path& path);

// Loads a checkpoint. Reads each file once and verifies it on the way. Throws UsageError with the file and the problem.
CheckpointState load_checkpoint(const std::filesystem::path& path);

}  // namespace ddprun::trainer
