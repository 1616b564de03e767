// Checkpoints: a folder each (checkpoints/step-000000400) with model.safetensors, optimizer.safetensors, where there is more a
// file for each further role, and manifest.json, which is written last and has every file's length and checksum (XXH3-128).
// Published by rename of a temporary folder on the same file system after fsync of files and folders; `latest` is a relative
// symbolic link that is replaced by rename. A killed writer leaves only a temporary folder, which the next writer removes.
// judge_checkpoint() and verify_checkpoint() find what is bad, and set_aside() renames it to step-000000400.bad. A
// resume decides on both (trainer/resume/resume.cpp).
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

// Small parts of a training state, by name: "plateau.lr". May be infinite.
using StateValues = std::map<std::string, double>;

// A training that another one began with: what it had saved up to that step is that one's past too.
struct EarlierRun {
  std::string id;  // empty: of a version whose checkpoints have none
  std::int64_t until = 0;
  bool operator==(const EarlierRun&) const = default;
};

// What a run needs to go on with the same numbers.
struct CheckpointState {
  std::int64_t step = 0;           // finished optimizer steps
  std::int64_t epoch = 0;          // of the next step, counted from 0
  std::int64_t position = 0;       // samples of that epoch already used
  std::int64_t samples = 0;        // used since the run began
  bool finished = false;           // the config's last step is done
  std::int64_t total_steps = 0;    // of the run when this was written, by its config
  std::int64_t config_epochs = 0;  // the config's epochs and max_steps then: a run that is finished goes on when they grow
  std::int64_t config_max_steps = 0;
  int world_size = 1;
  std::int64_t micro_batch_size = 0;
  int intra_op_threads = 1;
  std::string cpu_class;  // at::get_cpu_capability(): decision 18
  std::string torch_version;
  std::string device;     // "cpu", or the GPU's name; empty, as the next: written by a version that noted none
  std::string precision;  // trainer/models/precision.hpp
  std::uint64_t seed = 0;
  std::string config_digest;
  std::string run;  // the training that it is of (trainer/state/run_identity.hpp); empty: written by a version that had none
  std::vector<EarlierRun> earlier{};     // of that training, oldest first; in no file, so empty after loading
  std::optional<FigureList> evaluation;  // made after this very step; nothing when there was none
  std::vector<std::vector<std::int64_t>>
      bucket_order;  // the Reducer's rebuilt buckets, as indices of parameters (decision 19); may be empty
  std::map<std::string, std::string> tied;  // other names of parameters, and the name by which `model` has them
  std::vector<NamedTensor> model;           // parameters and buffers; after loading wider elements come first, so go by name
  std::vector<NamedTensor> optimizer;
  std::vector<NamedTensor> average;  // of the parameters that are trained (optimizer.ema); empty: none is kept
  StateValues values;
};

inline constexpr const char* kModelRole = "model";
inline constexpr const char* kOptimizerRole = "optimizer";
inline constexpr const char* kAverageRole = "average";

// The lists of a state's tensors with what they are, which names their files. What is saved, copied and looked at goes by it: a
// new kind of state is another line here.
template <typename State>  // CheckpointState or const CheckpointState
auto tensors_by_role(State& state) {
  return std::array{std::pair{kModelRole, &state.model}, std::pair{kOptimizerRole, &state.optimizer},
                    std::pair{kAverageRole, &state.average}};
}

struct SaveResult {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  std::string note;  // for the console, empty when all went well: why an older checkpoint or a dead writer's folder stays
};

// Told of each stage of a save as it is reached: "begun", "model-half" (in the middle of that file), "model-written",
// "optimizer-written", "average-written" where there is one, "manifest-written", "renamed", "latest-moved"; and "writing" after
// each piece of 64 MiB at most. What it throws ends the save there: before "renamed" nothing is published. Tests let faults
// happen in it, and a writer that was superseded learns of it there.
using StageObserver = std::function<void(const char* stage)>;

// Publishes state as checkpoints_dir/step-%09d and points `latest` to it, then removes what `retention` doesn't keep (never the
// one just written). What another training has left there stays, and takes no place. A step that is already published and valid
// keeps its tensors; only what its manifest says about the run's end (finished, total_steps, config_*) is brought up to date.
// One of that step that is of another run, which lies where no start has looked, is renamed to .superseded, an invalid one is
// set aside. Throws std::system_error naming the path (disk full, read-only); then nothing half-written is visible and older
// checkpoints are untouched. One writer a folder: see writer_claim.hpp.
SaveResult save_checkpoint(const std::filesystem::path& checkpoints_dir, const CheckpointState& state,
                           const Retention& retention, const StageObserver& at_stage = {});

struct Candidate {
  std::int64_t step = 0;
  std::filesystem::path path;
  std::string problem;  // empty: the manifest holds, as far as it was looked at
  std::string content;  // of a valid one: equal for copies of the same checkpoint (content_digest)
  std::string run{};    // of a valid one: CheckpointState::run
};

// All checkpoints of the folder, newest first, not looked into; none where there is no such folder. Throws std::system_error
// when it can't be listed.
std::vector<Candidate> list_checkpoints(const std::filesystem::path& checkpoints_dir);
// Judges one by its manifest and its files' lengths and fills in what came of it, the step as well: what is in the files shows
// when they are loaded. Changes nothing on the disk.
void judge_checkpoint(Candidate& candidate);
// The same, and reads every file for its checksum.
void verify_checkpoint(Candidate& candidate);
// List and verify at once, for all of the folder.
std::vector<Candidate> inspect_checkpoints(const std::filesystem::path& checkpoints_dir);

// Renames a bad checkpoint out of the way (step-000000400.bad, .bad-2, ...); returns the new path. When `latest` pointed to it,
// `latest` points to the newest of the others afterwards, or is gone.
std::filesystem::path set_aside(const Candidate& bad);

// Renames one that is valid but not of this run's present history (step-000000400.superseded, ...); returns the new path.
std::filesystem::path supersede(const std::filesystem::path& checkpoint);

// Points `latest` to this checkpoint unless it already does: a writer that was killed between its two renames leaves it behind,
// and people remove it. Throws std::system_error.
void mend_latest(const std::filesystem::path& checkpoint);

// Reads a checkpoint's weights and buffers, and not its optimizer, verifying all of it. It may have been taken out of the way
// (step-000000400.superseded). Weights of which it has an average are
// that, as evaluations have used it. Throws UsageError.
CheckpointState load_weights(const std::filesystem::path& path);

// Reads a checkpoint, each file once, and verifies it on the way. Throws UsageError naming file and problem.
CheckpointState load_checkpoint(const std::filesystem::path& path);

}  // namespace ddprun::trainer
