// Writes TensorBoard event files with scalars. The file is a sequence of TFRecords (length, masked CRC-32C), each with an
// Event message in protobuf's encoding (event_record.hpp). Only rank 0 writes event files. Each start creates a new file in
// the folder, and records the step at which it starts (SessionLog START). TensorBoard then drops the data in older files from
// that step on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/system/descriptor.hpp"

namespace ddprun {

class EventFile {
 public:
  // Creates <folder>/events.out.tfevents.<seconds>.<host>.<pid>.<n>. The name sorts after all existing names, because
  // TensorBoard reads the files in the order of their names. Calls `on_trouble` for the first problem. If the file can't be
  // created, each call of scalars() tries again. Until then, at most 1 MiB of metrics is kept. After a failed write, no
  // further data is written.
  EventFile(const std::filesystem::path& folder, std::int64_t resume_step, std::function<void(const std::string&)> on_trouble);
  struct Scalar {
    std::string tag;
    double value;
  };
  // Writes the metrics of a step. When the call returns, the file contains the metrics. If the write were delayed, a kill could
  // lose the metrics, because a resumed run does not repeat the steps before the newest checkpoint.
  void scalars(std::int64_t step, const std::vector<Scalar>& figures);

 private:
  void trouble(const std::string& what);
  void open();
  void write_out();

  std::filesystem::path folder_;
  std::function<void(const std::string&)> on_trouble_;
  std::filesystem::path path_;
  Descriptor opened_;
  bool troubled_ = false;  // true if a problem has been reported
  bool torn_ = false;      // true if a write has failed: no more data is written
  std::string buffer_;
};

}  // namespace ddprun
