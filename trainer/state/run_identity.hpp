// Identifies the run to which a checkpoint belongs. Suppose that a node is absent while the other nodes start the run again
// from scratch. When the node returns, its old checkpoints may have a higher step number than the new ones, but the run must
// not resume from them. So each run has a random identity, which is drawn at the first start and whenever the run starts from
// scratch (--fresh, or --resume with `never` or a path). Every checkpoint contains the identity (the key "run" of its
// manifest). Each node also stores the identity in its run directory (run.json) from the start. trainer/resume/resume.cpp
// compares the identities.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

struct RunIdentity {
  using Earlier = EarlierRun;

  std::string id;                  // 16 hex digits; empty if unknown
  std::vector<Earlier> earlier{};  // oldest first
  std::string data{};              // fingerprint of the training data (trainer/data/fingerprint.hpp); empty if unknown
  bool operator==(const RunIdentity&) const = default;

  bool known() const { return !id.empty(); }
  // Returns true if the checkpoint of `run` at `step` belongs to the history of this run. Such a checkpoint was written by
  // this run, or by an earlier run before this run branched off from that run.
  bool has(const std::string& run, std::int64_t step) const;
};

// Returns a random identity for a run that starts without a checkpoint.
RunIdentity new_run();
// Returns a random identity for a run that starts from the checkpoint of `run` at `step`. If `run` is in the history of
// `known`, the new identity keeps the part of that history before `run`.
RunIdentity new_run_from(const RunIdentity& known, const std::string& run, std::int64_t step);

// Returns the text of run.json for this identity.
std::string text_of(const RunIdentity& run);
// Parses the text of run.json. Throws UsageError if the text is not an identity.
RunIdentity run_identity_of(const std::string& text);

// Reads run.json. Returns nullopt if the file does not exist. Throws a UsageError that names the file if the file can't be
// read.
std::optional<RunIdentity> read_run_identity(const std::filesystem::path& file);
// Writes run.json unless the file already has this content. Throws std::system_error.
void write_run_identity(const std::filesystem::path& file, const RunIdentity& run);

}  // namespace ddprun::trainer
