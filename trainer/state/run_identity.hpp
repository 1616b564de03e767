// Identifies the training to which a checkpoint belongs. A node that was absent may return with copies of a training that was
// started over since. Their steps may be higher, but they must not be chosen. So each training has a random identity. A new one
// is drawn at its first start and at each new beginning (--fresh, --resume never or PATH). Every checkpoint contains it (the
// manifest's "run"), and each node stores it in its run directory (run.json) from the start. Used by trainer/resume/resume.cpp.
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

  std::string id;                  // 16 hex digits; empty: unknown
  std::vector<Earlier> earlier{};  // oldest first
  std::string data{};              // fingerprint of the training data (trainer/data/fingerprint.hpp); empty: unknown
  bool operator==(const RunIdentity&) const = default;

  bool known() const { return !id.empty(); }
  // Whether a checkpoint of that identity and step is in the history of this training.
  bool has(const std::string& run, std::int64_t step) const;
};

// Returns the identity of a training that begins without a checkpoint.
RunIdentity new_run();
// Returns the identity of a training that begins with a checkpoint of `run` at that step. `known` adds the earlier history if
// it matches.
RunIdentity new_run_from(const RunIdentity& known, const std::string& run, std::int64_t step);

std::string text_of(const RunIdentity& run);
// Throws UsageError if the text is not an identity.
RunIdentity run_identity_of(const std::string& text);

// Returns nullopt if the file does not exist. Throws UsageError naming the file if it can't be read.
std::optional<RunIdentity> read_run_identity(const std::filesystem::path& file);
// Writes the file unless it has this content already. Throws std::system_error.
void keep_run_identity(const std::filesystem::path& file, const RunIdentity& run);

}  // namespace ddprun::trainer
