// A slow check of data. It begins before the first step and continues in parallel with training. A data source that may have
// damaged samples implements it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

namespace ddprun::trainer {

// The part of the data that a check covers, and the folder of its results.
struct DataCheckPlace {
  std::filesystem::path folder;  // keeps results for later starts; empty: nothing is kept
  int rank = 0;                  // checks the part of this rank, of `world` parts
  int world = 1;
  std::function<void(const std::string&)> warn;  // a problem found after await(); called from another thread
};

class DataCheck {
 public:
  DataCheck() = default;
  // Ends the check; returns after at most one more sample.
  virtual ~DataCheck() = default;
  DataCheck(const DataCheck&) = delete;
  DataCheck& operator=(const DataCheck&) = delete;

  // Returns when the check has ended or the time is up. An unfinished check continues on one thread of low priority. Call once.
  // Throws UsageError with the names of damaged samples.
  virtual void await(std::chrono::milliseconds time) = 0;
};

}  // namespace ddprun::trainer
