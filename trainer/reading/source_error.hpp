// An error of a data source. It must be distinguished from other errors of a worker for two reasons. A custom source may read
// from a server, and its "Connection refused" must not be treated as the loss of another rank. If a source runs out of memory,
// a smaller micro-batch would not help, so a restart must not reduce the micro-batch.
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

// Call this function in a catch (...) around the code of a source. Throws UsageError if a mapped file has changed. Otherwise
// rethrows ddprun::Error and SourceError unchanged, and throws a SourceError for any other exception.
[[noreturn]] void rethrow_as_source_error();

}  // namespace ddprun::trainer
