// Reads and writes a checkpoint's manifest.json. The manifest contains the state of the run at the checkpoint's step, and the
// length and checksum of every other file. It is written last, so a folder without it is not a checkpoint. It also contains a
// checksum of itself, computed over the compact JSON dump with sorted keys and without the checksum field.
//
// There are two formats. The second one adds the role of each file, tensors in pieces, and small named values. If a state needs
// none of these, the first format is written, so that earlier versions can resume from it.
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
  std::string role;  // role of its tensors (tensors_by_role()); several files can have the same role
  TensorPieces pieces{};
};

struct Manifest {
  CheckpointState state;  // the state without its tensors
  std::map<std::string, StateFile> files;
};

// Returns the default name of the file that contains the whole tensors of a role.
std::string file_of_role(const std::string& role);

std::string encode_manifest(const Manifest& manifest);

// Throws UsageError with the problem only. The caller adds the file's path to the message.
Manifest decode_manifest(const std::string& text);

// Returns a digest of the step, the files and the rest of the training state. Two checkpoints have equal digests if training
// continues from both with bit-identical results. The digest does not cover the machine, the run's identity, and the config's
// entries about the end of the run, which may differ between copies of a checkpoint.
std::string content_digest(const Manifest& manifest);

// Returns true if the checkpoint `one` belongs to the same run as `present`, or to an earlier run in the history of `present`.
bool belongs_to_training(const CheckpointState& one, const CheckpointState& present);

// Returns true if `a` and `b` are the same step of one run. They may still differ in the machine and the world size, which
// affect rounding, and in the entries about the end of the run.
bool same_step_of_run(const CheckpointState& a, const CheckpointState& b);
// Copies the entries about the end of the run, the values and the evaluation (if any) from `state` to `saved`.
void copy_run_end(CheckpointState& saved, const CheckpointState& state);
// Returns true if both states have equal entries about the end of the run.
bool same_run_end(const CheckpointState& a, const CheckpointState& b);

// The functions below read the files of a published checkpoint. They throw UsageError, whose message names the file and the
// problem.
//
// Reads the manifest, and compares it with its own checksum and with the name of its folder.
Manifest read_manifest(const std::filesystem::path& checkpoint);
// Works like read_manifest(), but also checks that every listed file exists with the listed length.
Manifest judged_manifest(const std::filesystem::path& checkpoint);
// Works like judged_manifest(), but also reads every file and compares its checksum.
Manifest verified_manifest(const std::filesystem::path& checkpoint);

// Throws the UsageError for a file whose checksum differs from the one in its manifest.
[[noreturn]] void refuse_checksum(const std::filesystem::path& file, const std::string& found, const std::string& expected);

// Loads all tensors of a role, and verifies the checksums of their files. Tensors that are stored in pieces are joined.
std::vector<NamedTensor> load_role(const std::filesystem::path& checkpoint, const Manifest& manifest, const std::string& role);
// Verifies the checksums of a role's files without loading the tensors.
void verify_role(const std::filesystem::path& checkpoint, const Manifest& manifest, const std::string& role);

}  // namespace ddprun::trainer
