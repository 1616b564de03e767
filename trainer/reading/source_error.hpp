// Errors of a data source, kept apart from all other errors of a worker. A user's source may read from a server: its
// "Connection refused" is not the loss of another rank. Memory that a source lacks is not the memory of a batch, so a smaller
// micro-batch would not help.
#pragma once

#include <stdexcept>
#include <string>

namespace ddprun::trainer {

class SourceError : public std::runtime_error {
 public:
  SourceError(const std::string& message, bool out_of_memory) : std::runtime_error(message), out_of_memory_(out_of_memory) {}
  bool out_of_memory() const noexcept { return out_of_memory_; }

 private:
  bool out_of_memory_;
};

// Call in a catch (...) around a source's code. Throws UsageError if a mapped file has changed. Else rethrows ddprun::Error and
// SourceError unchanged, and any other error as SourceError.
[[noreturn]] void rethrow_as_source_error();

}  // namespace ddprun::trainer
