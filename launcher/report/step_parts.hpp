// Computes how the step time is divided among the parts of a step, from the lines of metrics.jsonl. Used by `ddprun report`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>

#include "launcher/report/report_figures.hpp"

namespace ddprun {

class StepParts {
 public:
  // The next line passed to take() covers the steps after this one.
  void begin_after(std::int64_t step) { step_before_ = step; }
  // Call it for each line in file order. Lines without step parts are ignored, whatever their event.
  void take(const ReportJson& line);
  // "12.3 ms: data 1 %, forward 30 %, ... in steps 301 to 400"; empty if no line had step parts.
  std::string text() const;

  // "412 MiB on rank 0, 430 MiB where it is largest", from the newest line with these fields; empty if there was none.
  std::string memory_text() const;

  // "3 steps changed nothing", from the newest line that has the count; empty if no step was skipped.
  std::string skipped_text() const;

  // The parts in a step's line, in the order in which a step executes them.
  static constexpr std::array kNames{"data_ms", "forward_ms", "backward_ms", "waiting_ms", "optimizer_ms", "rest_ms"};

 private:
  static constexpr std::size_t kLines = 100;  // number of newest lines that are used
  struct Line {
    std::int64_t after = 0;  // step of the previous line
    std::int64_t step = 0;
    std::array<double, kNames.size()> ms{};  // mean time per step of each part
  };
  std::deque<Line> lines_;
  std::int64_t step_before_ = 0;
  std::int64_t peak_memory_ = 0;  // in bytes
  std::int64_t largest_peak_memory_ = 0;
  std::int64_t skipped_ = 0;
};

// Reads the end of a metrics.jsonl. A missing file gives an empty result.
StepParts step_parts_of(const std::filesystem::path& metrics);

}  // namespace ddprun
