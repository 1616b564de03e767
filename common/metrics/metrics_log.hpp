// metrics.jsonl: one JSON object a line, appended across restarts. Each line is one write, so a crash leaves at most a torn
// last line, which the next opening drops. Rank 0 only. A full disk is reported once and does not stop training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace ddprun {

class MetricsLog {
 public:
  // Opens for appending. Records of steps past `resume_step` ("step" greater than it) are cut, as is a torn last line; the cut
  // is atomic. `on_trouble` is told once when the file can't be opened, cut or written. One that can't be opened is tried again
  // with each record, and the records until then are kept for it (1 MiB at most); lines that can't be written are missing.
  MetricsLog(const std::filesystem::path& file, std::int64_t resume_step, std::function<void(const std::string&)> on_trouble);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Adds "event" and "time_ns" (CLOCK_REALTIME) in front and writes the line.
  void write(const std::string& event, const nlohmann::ordered_json& fields);
  // The largest "step" of the records of this event that are in the file; -1: there are none.
  std::int64_t newest(const std::string& event) const;

 private:
  void open();
  void put(const std::string& lines);
  void trouble(const std::string& what);
  void remove_torn_line(std::int64_t bytes);

  std::filesystem::path file_;
  std::int64_t resume_step_;
  int fd_ = -1;
  bool cut_ = false;
  std::string kept_;  // while it can't be opened
  std::map<std::string, std::int64_t, std::less<>> newest_;
  bool troubled_ = false;
  std::function<void(const std::string&)> on_trouble_;
};

}  // namespace ddprun
