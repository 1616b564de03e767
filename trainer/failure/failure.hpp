// Classifies an exception that ends a worker: its kind, the exit code, one clear message, and the sizes of a failed allocation.
// Exceptions of LibTorch are classified only in this module.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "common/base/error.hpp"
#include "common/channel/message.hpp"

namespace ddprun::trainer {

// Thrown if the last checkpoint of a run could not be saved. The exit code is 89. The job is never restarted: a restart would
// repeat the steps, and then fail to save to the same disk.
class UnsavedError : public Error {
 public:
  explicit UnsavedError(const std::string& message) : Error(ExitCode::kInternal, message) {}
};

struct Failure {
  channel::ErrorKind kind = channel::ErrorKind::kException;
  int exit_code = 1;
  std::string message{};
  std::optional<std::int64_t> bytes_asked{};
  std::optional<std::int64_t> bytes_free{};
  bool others_suspect = false;
  bool of_data = false;  // true if the data source has failed; neither a lost worker nor the batch size is then the cause
};

Failure classify(const std::exception_ptr& error);

// These functions parse the number of bytes in an allocator's error message, such as "you tried to allocate 4096 bytes", "Tried
// to allocate 1.50 GiB" or "of which 2.25 MiB is free".
std::optional<std::int64_t> bytes_requested_in(const std::string& message);
std::optional<std::int64_t> bytes_free_in(const std::string& message);

}  // namespace ddprun::trainer
