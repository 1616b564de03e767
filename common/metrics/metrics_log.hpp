// Writes metrics.jsonl: one JSON object per line. Restarts of a run append to the same file. Each line is one write(2), so
// after a crash only the last line can be incomplete. The next start removes an incomplete line. Only rank 0 writes the file.
// A full disk is reported once and does not stop training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/system/descriptor.hpp"

namespace ddprun {

class MetricsLog {
 public:
  // Opens the file for appending. Atomically removes records with a "step" greater than `resume_step`, and an incomplete last
  // line. `on_trouble` is called for the first problem. If the file can't be opened, each call to write() tries again, and at
  // most 1 MiB of records is kept until then. Lines that can't be written are lost.
  MetricsLog(const std::filesystem::path& file, std::int64_t resume_step, std::function<void(const std::string&)> on_trouble);

  // Writes a line with "event", "time_ns" (CLOCK_REALTIME) and the fields.
  void write(const std::string& event, const nlohmann::ordered_json& fields);
  // Returns the largest "step" in the records with the event `event`; -1 if there are none.
  std::int64_t newest(const std::string& event) const;

 private:
  void open();
  void put(const std::string& lines);
  void trouble(const std::string& what);
  void remove_torn_line(std::int64_t bytes);

  std::filesystem::path file_;
  std::int64_t resume_step_;
  Descriptor opened_;
  bool cut_ = false;
  std::string kept_;  // records that wait until the file can be opened
  std::map<std::string, std::int64_t, std::less<>> newest_;
  bool troubled_ = false;
  std::function<void(const std::string&)> on_trouble_;
};

}  // namespace ddprun
