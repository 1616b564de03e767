// Lets one worker inflate a gzip data set for all workers of its machine. That worker publishes the inflated data in shared
// memory, and the other workers map it. trainer/life/inflated_file_exchange.cpp sets these functions if the worker has an
// agent. idx_file.cpp calls them from the thread that reads the data.
#pragma once

#include <functional>
#include <string>

namespace ddprun::trainer {

struct InflatedFiles {
  // The inflating worker calls this once for each gzip file of images, even if inflating has failed. `memory` is the name of
  // the shared memory with the content of `file`, or empty if inflating has failed. Must not throw.
  std::function<void(const std::string& file, const std::string& memory)> offer;
  // The other workers call this. It blocks until the inflating worker has called offer() for `file`, and returns `memory` from
  // that call. Returns an empty name if no memory is offered. Must not throw.
  std::function<std::string(const std::string& file)> find;
};

}  // namespace ddprun::trainer
