// The error taxonomy: one exception type per kind of exit. Every message states what was expected, what was found, where, and
// what to do next. It is shown to users unchanged, after "ddprun: " or "ddptrain: ".
#pragma once

#include <stdexcept>
#include <string>

#include "common/base/exit_code.hpp"

namespace ddprun {

// Base of all errors that end a program with one of ddprun's own exit codes.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// A wrong command line, config, data set or run directory, which the user can fix. Exit code 2, never restarted.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::kUsage, message) {}
};

// Checkpoints exist, but none is valid. Exit code 87.
class BadCheckpointError : public Error {
 public:
  explicit BadCheckpointError(const std::string& message) : Error(ExitCode::kBadCheckpoint, message) {}
};

// The loss is not a number, or ranks disagree. Exit code 88.
class DivergedError : public Error {
 public:
  explicit DivergedError(const std::string& message) : Error(ExitCode::kDiverged, message) {}
};

// The operating system refused a resource that ddprun needs, or an invariant broke. Exit code 89.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ExitCode::kInternal, message) {}
};

// Another process continues this run. Exit code 90, never restarted: this process has nothing more to do.
class SupersededError : public Error {
 public:
  explicit SupersededError(const std::string& message) : Error(ExitCode::kSuperseded, message) {}
};

}  // namespace ddprun
