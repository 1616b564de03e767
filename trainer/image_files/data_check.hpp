// The interface of a slow check for damaged samples, which a data source may implement. The check starts before the first step
// and continues in parallel with training.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

namespace ddprun::trainer {

// The part of the data that a check covers, and the folder of its results.
struct DataCheckPlace {
  // folder in which results are stored for later invocations of the run; if empty, results are not stored
  std::filesystem::path folder;
  int rank = 0;  // the data is divided into `world` parts, and part `rank` is checked
  int world = 1;
  // The check calls this with each problem that it finds after await() has returned. The calls come from a thread of the check.
  std::function<void(const std::string&)> warn;
};

class DataCheck {
 public:
  DataCheck() = default;
  // The destructor stops the check. It waits only for the samples that are being checked.
  virtual ~DataCheck() = default;
  DataCheck(const DataCheck&) = delete;
  DataCheck& operator=(const DataCheck&) = delete;

  // Returns when the check has ended or `time` has passed. An unfinished check continues on one thread of low priority. Call
  // this once. Throws UsageError with the names of damaged samples.
  virtual void await(std::chrono::milliseconds time) = 0;
};

}  // namespace ddprun::trainer
