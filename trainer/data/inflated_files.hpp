// Lets one worker of a machine inflate a gzip data set for all. That worker offers the inflated data, and the others find it.
// trainer/life/inflated_sharing.cpp sets these functions if there is a worker channel. idx_file.cpp calls them, from the thread
// that reads.
#pragma once

#include <functional>
#include <string>

namespace ddprun::trainer {

struct InflatedFiles {
  // For the worker that inflates: the content of `file` is in the shared memory of that name, or in none if the name is empty.
  // Called once for each gzip file of images, also after a failure. Must not throw.
  std::function<void(const std::string& file, const std::string& memory)> offer;
  // For the other workers: waits for the offer. Returns an empty name if there will be none. Must not throw.
  std::function<std::string(const std::string& file)> find;
};

}  // namespace ddprun::trainer
