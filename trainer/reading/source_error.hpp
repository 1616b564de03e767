// What a data source throws while it reads or makes samples, told apart from what the rest of a worker throws. A source may be
// a user's own, and read from a server: its "Connection refused" is not the loss of another rank, and memory that it lacks is
// not that of a batch, so a smaller micro-batch would not help.
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

// Call in a catch (...) around a source's code. Throws UsageError for a mapped file that has changed. Else rethrows
// ddprun::Error and SourceError as they are, and all else as SourceError.
[[noreturn]] void rethrow_as_source_error();

}  // namespace ddprun::trainer
