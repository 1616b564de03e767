// The error taxonomy: one exception type per kind of exit. Every message says what was expected, what was found, where, and
// what to do next; it is shown to people as it is, after "ddprun: " or "ddptrain: ".
#pragma once

#include <stdexcept>
#include <string>

#include "common/base/exit_code.hpp"

namespace ddprun {

// Base of all errors that end a program with a code of its own.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// Wrong command line, config, dataset, run directory: something the user can mend. Exit 2, never restarted.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::kUsage, message) {}
};

// Checkpoints exist but none can be used. Exit 87.
class BadCheckpointError : public Error {
 public:
  explicit BadCheckpointError(const std::string& message) : Error(ExitCode::kBadCheckpoint, message) {}
};

// Loss is not a number, or ranks disagree. Exit 88.
class DivergedError : public Error {
 public:
  explicit DivergedError(const std::string& message) : Error(ExitCode::kDiverged, message) {}
};

// The operating system refused something ddprun can't do without, or an invariant broke. Exit 89.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ExitCode::kInternal, message) {}
};

// Another process goes on with this run. Exit 90, never restarted: whoever is told has nothing more to do here.
class SupersededError : public Error {
 public:
  explicit SupersededError(const std::string& message) : Error(ExitCode::kSuperseded, message) {}
};

}  // namespace ddprun
