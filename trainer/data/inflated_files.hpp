// How the workers of a machine inflate a gzip data set once instead of each for itself: one offers what it has inflated, the
// others find it. trainer/life/inflated_sharing.cpp fills this in where there is a worker channel; idx_file.cpp calls it, from
// the thread that reads.
#pragma once

#include <functional>
#include <string>

namespace ddprun::trainer {

struct InflatedFiles {
  // Of the one that inflates: the file's content is in the shared memory of that name; empty: nowhere. Called once for each
  // gzip file of images, whatever becomes of it. Must not throw.
  std::function<void(const std::string& file, const std::string& memory)> offer;
  // Of the others: waits for the offer. Empty: there will be none. Must not throw.
  std::function<std::string(const std::string& file)> find;
};

}  // namespace ddprun::trainer
