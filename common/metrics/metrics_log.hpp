// metrics.jsonl: one JSON object per line, appended across restarts. Each line is one write, so a crash leaves at most a torn
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
  // Opens for appending. Cuts records with a "step" greater than `resume_step` and a torn last line; the cut is atomic.
  // `on_trouble` is called once if the file can't be opened, cut or written. If it can't be opened, each record retries, and
  // the records until then are kept (1 MiB at most). Lines that can't be written are lost.
  MetricsLog(const std::filesystem::path& file, std::int64_t resume_step, std::function<void(const std::string&)> on_trouble);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Adds "event" and "time_ns" (CLOCK_REALTIME) in front and writes the line.
  void write(const std::string& event, const nlohmann::ordered_json& fields);
  // The largest "step" of this event's records in the file; -1 if there are none.
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
