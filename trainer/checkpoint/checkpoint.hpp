// Checkpoints: save a training state so that a crash at any moment leaves a complete checkpoint.
//
// A writer can be killed at any system call. After a power cut the disk may have a file's name but not its content. The disk
// may be full, or a bit may flip. A writer of an earlier round may have been suspended. It may resume, and write at the same
// time as the current writer. The worst outcome is a damaged checkpoint that looks complete, because training then resumes
// with wrong numbers and without an error.
//
// Atomic publication. All content is on the disk before a rename publishes the folder. The new name is on the disk before an
// older checkpoint is removed.
//
//   .tmp-step-000000400-PID/    temporary folder on the same file system; its writer holds a flock on it
//     model.safetensors         written, fsync; then optimizer.safetensors and one file for each further role
//     manifest.json             written last, fsync
//   fsync of the folder, rename to step-000000400, fsync of checkpoints/
//   latest -> step-000000400    relative symbolic link, replaced by a rename; then fsync of checkpoints/
//   checkpoints that are not kept are removed
//
// A writer that is killed before the rename leaves only a temporary folder, which the next writer removes. The flock
// distinguishes this leftover from the folder of a running writer, even if process ids are reused. `latest` may be out of date
// or missing. This is harmless, because the code that chooses a checkpoint does not read the link.
//
// Checksums. The manifest has the length and the XXH3-128 checksum of every other file, and a checksum of itself.
// judge_checkpoint() reads the manifest and the lengths only; loading checks the content. We used to read every kept checkpoint
// at each start: with three checkpoints of 89.5 MB, rank 0 read 447 MB. Now rank 0 reads 89.5 MB
// (docs/internals/decisions/checkpoint/read-once.md). The drawback is that damage in an older checkpoint is detected only when
// that checkpoint is loaded. XXH3 detects damage, not forgery.
//
// Pieces. A file contains whole tensors or ranges of flattened tensors: {"fc1.weight": {"shape": [512, 784], "begin": 200704}}
// is the second half of a matrix. So the number of ranks that load a checkpoint can differ from the number that saved it
// (pieces.hpp). No code writes pieces yet, because one rank has all tensors.
//
// Cost: the disk needs space for the new checkpoint in addition to all kept ones, and each save waits for fsync. Only rank 0
// writes the checkpoint, because several writers were slower on our disk: 1489 MB/s with one stream, 1361 with two, 1288 with
// four (docs/internals/decisions/checkpoint/one-writer.md).
//
// A damaged checkpoint is not deleted: set_aside() renames it to step-000000400.bad. trainer/resume/resume.cpp calls these
// functions and chooses the checkpoint of a resume. tests/trainer/checkpoint/crash_consistency_test.cpp injects an error and a
// kill at each file system call of a save.
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

// Named scalars of a training state, such as "plateau.lr". A value may be infinite.
using StateValues = std::map<std::string, double>;

// An earlier run that wrote the checkpoint from which this run started. The checkpoints of the earlier run up to step `until`
// belong to the history of both runs.
struct EarlierRun {
  std::string id;  // empty if an older version of ddprun, without run ids, wrote the checkpoint
  std::int64_t until = 0;
  bool operator==(const EarlierRun&) const = default;
};

// The state that a run needs to resume with bit-identical results.
struct CheckpointState {
  std::int64_t step = 0;         // number of finished optimizer steps
  std::int64_t epoch = 0;        // epoch of the next step, counted from 0
  std::int64_t position = 0;     // number of samples of that epoch that are already used
  std::int64_t samples = 0;      // number of samples used since the start of the run
  bool finished = false;         // true if the run has finished the last step of its config
  std::int64_t total_steps = 0;  // length of the run according to its config at the time of the save
  // `epochs` and `max_steps` of the config at the time of the save. If a user increases them later, a finished run continues.
  std::int64_t config_epochs = 0;
  std::int64_t config_max_steps = 0;
  int world_size = 1;
  std::int64_t micro_batch_size = 0;
  int intra_op_threads = 1;
  std::string cpu_class;  // result of at::get_cpu_capability(); rounding depends on it
  std::string torch_version;
  std::string device;  // "cpu", or the name of the GPU; empty if an older version wrote the checkpoint
  // result of precision_text() (trainer/models/precision.hpp); empty if an older version wrote the checkpoint
  std::string precision;
  // "ranks" if sums over ranks were added in the order of ranks (trainer/collectives). Empty for Gloo and NCCL, and in
  // checkpoints of older versions.
  std::string summation;
  std::uint64_t seed = 0;
  std::string config_digest;
  // Identity of the run (trainer/state/run_identity.hpp). Empty in checkpoints of older versions, which did not store it.
  std::string run;
  // Earlier runs in the history of this run, oldest first. The manifest does not contain them, so the list is empty after
  // loading.
  std::vector<EarlierRun> earlier{};
  std::optional<MetricList> evaluation;  // evaluation after exactly this step; nullopt if there was none
  // The buckets that DDP's Reducer rebuilt after the first step. Each bucket is a list of parameter indices. The outer list
  // may be empty.
  std::vector<std::vector<std::int64_t>> bucket_order;
  // The additional names of tied parameters. The key is an additional name, and the value is the parameter's name in `model`.
  std::map<std::string, std::string> tied;
  // Parameters and buffers. Find them by name and not by index, because loading changes their order: wider elements come first.
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
  std::vector<NamedTensor> average;  // averages of the trained parameters (optimizer.ema); empty if the run has no averages
  StateValues values;
};

inline constexpr const char* kModelRole = "model";
inline constexpr const char* kOptimizerRole = "optimizer";
inline constexpr const char* kAverageRole = "average";

// Returns each list of tensors in a state with its role, which determines the file name. Saving, loading, copying and the check
// for NaN iterate over this array, so a new list of tensors must be added to it.
template <typename State>  // CheckpointState or const CheckpointState
auto tensors_by_role(State& state) {
  return std::array{std::pair{kModelRole, &state.model}, std::pair{kOptimizerRole, &state.optimizer},
                    std::pair{kAverageRole, &state.average}};
}

struct SaveResult {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  std::string note;  // message for the console: links or old folders that could not be changed, and why; may be empty
};

// Called when a save reaches a stage: "begun", "model-half" (half of the model's file is written), "model-written",
// "optimizer-written", "average-written" if there is an average, "manifest-written", "renamed", "latest-moved". It is also
// called with "writing" after each write of at most 64 MiB.
//
// An exception from the observer ends the save. Before "renamed", no checkpoint is published yet. Tests inject faults through
// the observer. The trainer's observer checks whether another process has superseded this writer.
using StageObserver = std::function<void(const char* stage)>;

// Publishes `state` as checkpoints_dir/step-%09d, points `latest` to it, and removes the checkpoints that `retention` does not
// keep. The new checkpoint is never removed. Checkpoints of another run stay, and `retention` does not count them.
//
// If the same step of this run is already published and valid, its tensors stay. The manifest is updated if the entries about
// the end of the run differ (finished, total_steps, config_*), or if only `state` has an evaluation. The evaluation and the
// values are then updated too. If the published step belongs to another run, it is renamed to .superseded. If it is invalid,
// set_aside() renames it.
//
// Throws std::system_error with the path (disk full, read-only). After an error, no half-written checkpoint is visible, and
// older checkpoints are unchanged. Only one process may write to a folder: see writer_claim.hpp.
SaveResult save_checkpoint(const std::filesystem::path& checkpoints_dir, const CheckpointState& state,
                           const Retention& retention, const StageObserver& at_stage = {});

struct Candidate {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::string problem;  // why the checkpoint is invalid; empty if the checks so far have found no problem
  std::string content;  // result of content_digest() if the checkpoint is valid; equal for copies of the same checkpoint
  std::string run{};    // value of CheckpointState::run if the checkpoint is valid
};

// Lists the published checkpoints of the folder by their names, newest first. It reads no files. Returns an empty list if the
// folder does not exist. Throws std::system_error if the folder can't be listed.
std::vector<Candidate> list_checkpoints(const std::filesystem::path& checkpoints_dir);
// Checks the manifest and the lengths of the files at `candidate.path`, and sets the other members of the candidate. Does not
// check the content of the files, which is checked when they are loaded. Changes nothing on the disk.
void judge_checkpoint(Candidate& candidate);
// Works like judge_checkpoint(), but also reads every file and compares its checksum.
void verify_checkpoint(Candidate& candidate);
// Lists all checkpoints of the folder, and verifies each of them.
std::vector<Candidate> inspect_checkpoints(const std::filesystem::path& checkpoints_dir);

// Renames a bad checkpoint (step-000000400.bad, .bad-2, ...) and returns the new path. If `latest` pointed to it, `latest` then
// points to the newest remaining checkpoint, or is removed if none remains.
std::filesystem::path set_aside(const Candidate& bad);

// Renames a valid checkpoint that is not in the history of this run (step-000000400.superseded, ...). Returns the new path.
std::filesystem::path supersede(const std::filesystem::path& checkpoint);

// Points `latest` to this checkpoint unless it already does. The link is out of date if a writer was killed after it had
// renamed the checkpoint and before it had replaced the link. A user may also have removed the link. Throws std::system_error.
void repair_latest(const std::filesystem::path& checkpoint);

// Loads weights and buffers without the optimizer's state, and verifies all files. If the checkpoint has an average of a
// weight, the average replaces the weight, as in evaluations. Accepts a renamed checkpoint (step-000000400.superseded). Throws
// UsageError.
CheckpointState load_weights(const std::filesystem::path& path);

// Loads a checkpoint. Reads each file once and verifies its checksum during that read. Throws UsageError with the file and the
// problem.
CheckpointState load_checkpoint(const std::filesystem::path& path);

}  // namespace ddprun::trainer
