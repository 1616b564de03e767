// manifest.json of a checkpoint: the state of the run at that step, and length and checksum of every other file. It is written
// last, so a folder without it is not a checkpoint. It also has a checksum of itself, computed over the compact JSON dump with
// sorted keys and without that field. So a flipped bit in the manifest is detected too.
//
// There are two formats. The second one adds files by role, tensors in pieces, and small named values. A state that needs none
// of these is written in the first format, so that earlier versions can resume from it.
#pragma once

#include <map>
#include <string>

#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/checkpoint/hashed_file.hpp"
#include "trainer/checkpoint/pieces.hpp"

namespace ddprun::trainer {

inline constexpr const char* kManifestFile = "manifest.json";

struct StateFile {
  FileFacts facts;
  std::string role;  // role of its tensors (tensors_by_role()); several files may share one
  TensorPieces pieces{};
};

struct Manifest {
  CheckpointState state;  // without tensors
  std::map<std::string, StateFile> files;
};

// Returns the name of the file of a role whose tensors are whole.
std::string file_of_role(const std::string& role);

std::string encode_manifest(const Manifest& manifest);

// The message of the UsageError has only the problem; the caller adds the path.
Manifest decode_manifest(const std::string& text);

// Equal for two checkpoints from which training continues with the same bits. It is a digest of the step, the files and the
// rest of the training state. It leaves out the machine, the run's identity, and the config's entries about the end of the run.
// These may differ between copies.
std::string content_digest(const Manifest& manifest);

// True if the checkpoint `one` belongs to the same training as `present`, or to one from which that training began.
bool is_of_training(const CheckpointState& one, const CheckpointState& present);

// True if both are the same step of one run. They may differ in the machine and the world size, which change the rounding, and
// in the entries about the end of the run.
bool same_step_of_run(const CheckpointState& a, const CheckpointState& b);
// Copies the entries about the end of the run, the values and the evaluation (if any) from `state` to `saved`.
void take_end(CheckpointState& saved, const CheckpointState& state);
// True if the entries about the end of the run are equal.
bool same_end(const CheckpointState& a, const CheckpointState& b);

}  // namespace ddprun::trainer
