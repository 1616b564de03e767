// Which training a checkpoint is of. A node that was away may come back with copies of a training that was started over since;
// their steps may be higher, and yet they must not win. So each training has an identity, drawn at its first start and whenever
// somebody orders another beginning (--fresh, --resume never or PATH). Every checkpoint carries it (the manifest's "run"), and
// each node keeps it in its run directory (run.json) from the beginning on. Used by trainer/resume/resume.cpp.
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

  std::string id;                  // 16 hex digits; empty: not known
  std::vector<Earlier> earlier{};  // oldest first
  std::string data{};              // of what it trains on (trainer/data/fingerprint.hpp); empty: not known
  bool operator==(const RunIdentity&) const = default;

  bool known() const { return !id.empty(); }
  // Whether this training goes on from a checkpoint of that identity and step.
  bool has(const std::string& run, std::int64_t step) const;
};

// Of a training that begins with nothing.
RunIdentity new_run();
// Of one that begins with a checkpoint of `run` at that step; `known` may tell what came before.
RunIdentity new_run_from(const RunIdentity& known, const std::string& run, std::int64_t step);

std::string text_of(const RunIdentity& run);
// Throws UsageError when it is no such text.
RunIdentity run_identity_of(const std::string& text);

// Nothing where there is no file. Throws UsageError naming the file when it can't be read.
std::optional<RunIdentity> read_run_identity(const std::filesystem::path& file);
// Writes it unless it is there already. Throws std::system_error.
void keep_run_identity(const std::filesystem::path& file, const RunIdentity& run);

}  // namespace ddprun::trainer
