// The exception types. Each type has one exit code. Every message contains what was expected, what was found, where, and what
// to do next. Users see the message unchanged, after "ddprun: " or "ddptrain: ".
#pragma once

#include <stdexcept>
#include <string>

#include "common/base/exit_code.hpp"

namespace ddprun {

// The base class of all errors that end ddprun or ddptrain with an exit code from exit_code.hpp.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// Thrown for a wrong command line, config, data set or run directory, which the user can correct. The exit code is 2, and the
// job is never restarted.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::kUsage, message) {}
};

// Thrown if the run has checkpoints, but none of them is valid. The exit code is 87.
class BadCheckpointError : public Error {
 public:
  explicit BadCheckpointError(const std::string& message) : Error(ExitCode::kBadCheckpoint, message) {}
};

// Thrown if the training loss is not finite, or if the training states of the ranks differ. The exit code is 88.
class DivergedError : public Error {
 public:
  explicit DivergedError(const std::string& message) : Error(ExitCode::kDiverged, message) {}
};

// Thrown if the operating system refused a resource that ddprun needs, or if an invariant of ddprun does not hold. The exit
// code is 89.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ExitCode::kInternal, message) {}
};

// Thrown if another process continues this run, so that this process must exit. The exit code is 90, and the job is never
// restarted.
class SupersededError : public Error {
 public:
  explicit SupersededError(const std::string& message) : Error(ExitCode::kSuperseded, message) {}
};

}  // namespace ddprun
