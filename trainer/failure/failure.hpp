// Classifies an exception that ends a worker: its kind, the exit code, one clear message, and the sizes of a refused
// allocation. This is the only place that distinguishes exceptions of LibTorch.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "common/base/error.hpp"
#include "common/channel/message.hpp"

namespace ddprun::trainer {

// The last checkpoint of a run could not be saved. Exit 89, never restarted: a restart would repeat the steps for the same
// disk.
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
  bool of_data = false;  // error of the data source: no peer and no batch caused it
};

Failure classify(const std::exception_ptr& error);

// Bytes in an allocator's message: "you tried to allocate 4096 bytes", "Tried to allocate 1.50 GiB", "of which 2.25 MiB is
// free". Pure.
std::optional<std::int64_t> bytes_asked_in(const std::string& message);
std::optional<std::int64_t> bytes_free_in(const std::string& message);

}  // namespace ddprun::trainer
