// manifest.json of a checkpoint: what the run was at that step, and length and checksum of every other file. It is written
// last, so a checkpoint without it is not one, and it has a checksum of itself (over the compact dump with sorted keys, without
// that field), so a flipped bit in it is noticed too.
//
// There are two formats. The second one has what the first can't say: files by role, tensors in pieces, and small named values.
// A state that needs none of these is written in the first, so that earlier versions go on from it.
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
  std::string role;  // of its tensors (tensors_by_role()); several files may have one
  TensorPieces pieces{};
};

struct Manifest {
  CheckpointState state;  // without tensors
  std::map<std::string, StateFile> files;
};

// The file of a role that is written whole.
std::string file_of_role(const std::string& role);

std::string encode_manifest(const Manifest& manifest);

// Throws UsageError with the problem alone; the caller knows the path.
Manifest decode_manifest(const std::string& text);

// Equal for two checkpoints that training goes on from to the same bits: a digest of the step, the files and what the rest of
// the training state follows from. What the machine was, whose run it is and what the config says about the run's end are left
// out, which may differ between copies.
std::string content_digest(const Manifest& manifest);

// True when that checkpoint is of the training that this one is of, or of what that began with.
bool is_of_training(const CheckpointState& one, const CheckpointState& present);

// True if both are the same step of one run. They may differ in the machine and the world size that made it, which change its
// rounding, and in what the config says about the run's end.
bool same_step_of_run(const CheckpointState& a, const CheckpointState& b);
// What `state` knows of the run's end, and of the evaluation and the values at that step, into what was saved of it.
void take_end(CheckpointState& saved, const CheckpointState& state);
// True when what the config says about the run's end is the same too.
bool same_end(const CheckpointState& a, const CheckpointState& b);

}  // namespace ddprun::trainer
