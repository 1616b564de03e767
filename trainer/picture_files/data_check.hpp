// A check of data that takes long: it begins before the first step and continues beside training. A kind of data that may hold
// damaged samples implements it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

namespace ddprun::trainer {

// Where and for whom a check runs.
struct DataCheckPlace {
  std::filesystem::path folder;  // for results that a later start uses; empty: nothing is kept
  int rank = 0;                  // checks the part of this rank, of `world` parts
  int world = 1;
  std::function<void(const std::string&)> warn;  // a problem found after await(); called from another thread
};

class DataCheck {
 public:
  DataCheck() = default;
  // Ends the check; returns after at most one sample more.
  virtual ~DataCheck() = default;
  DataCheck(const DataCheck&) = delete;
  DataCheck& operator=(const DataCheck&) = delete;

  // Returns when the check has ended or the time is up; it then continues on one thread of low priority. Call once. Throws
  // UsageError naming what is damaged.
  virtual void await(std::chrono::milliseconds time) = 0;
};

}  // namespace ddprun::trainer
