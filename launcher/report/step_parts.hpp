// Computes the mean step time and the fraction that each part takes (data, forward, backward, ...). It uses the newest 100 step
// lines of a metrics.jsonl. A line contains means over the steps since the previous line, so each line is weighted by its
// number of steps. `ddprun report` shows the result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>

#include "launcher/report/report_metrics.hpp"

namespace ddprun {

class StepParts {
 public:
  // `step` is the last step before the first line that is passed to take(). If this function is not called, that step is 0.
  void begin_after(std::int64_t step) { step_before_ = step; }
  // Adds a line of the file. The lines must be added in file order. Lines that are not step lines, or lack the parts, do not
  // change the times.
  void take(const ReportJson& line);
  // Returns a text such as "12.3 ms: data 1 %, forward 30 %, ... in steps 301 to 400", or "" if no line had the parts.
  std::string text() const;

  // Returns a text such as "412 MiB on rank 0, 430 MiB on the rank with the highest peak". The values come from the newest line
  // that has them. Returns "" if no line has them.
  std::string memory_text() const;

  // Returns a text such as "3 steps without an update: a loss or a gradient was not finite". Returns "" if no step was skipped.
  std::string skipped_text() const;

  // The names of the parts in a step line, in the order of execution.
  static constexpr std::array kNames{"data_ms", "forward_ms", "backward_ms", "waiting_ms", "optimizer_ms", "rest_ms"};

 private:
  static constexpr std::size_t kLines = 100;  // number of newest step lines that are used
  struct Line {
    std::int64_t after = 0;  // the line covers the steps after this one
    std::int64_t step = 0;
    std::array<double, kNames.size()> ms{};  // mean milliseconds per step of each part
  };
  std::deque<Line> lines_;
  std::int64_t step_before_ = 0;
  std::int64_t peak_memory_ = 0;  // newest peak of rank 0, in bytes
  std::int64_t largest_peak_memory_ = 0;
  std::int64_t skipped_ = 0;
};

// Reads the last 256 KiB of a metrics.jsonl. If the file does not exist, the result has no values.
StepParts step_parts_of(const std::filesystem::path& metrics);

}  // namespace ddprun
