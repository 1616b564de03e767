// Where the time of steps went, from the lines of metrics.jsonl: what `ddprun report` says of it.
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
  // The first line that is taken counts from behind this step.
  void begin_after(std::int64_t step) { step_before_ = step; }
  // Each line in its order. One that tells no parts, of whatever event, is left out.
  void take(const ReportJson& line);
  // "12.3 ms: data 1 %, forward 30 %, ... in steps 301 to 400"; empty where nothing is known.
  std::string text() const;

  // "412 MiB on rank 0, 430 MiB where it is largest", of the newest line that tells it; empty where none does.
  std::string memory_text() const;

  // "3 steps changed nothing", likewise; empty where none was skipped.
  std::string skipped_text() const;

  // What a step's line has of them, in the order of a step.
  static constexpr std::array kNames{"data_ms", "forward_ms", "backward_ms", "waiting_ms", "optimizer_ms", "rest_ms"};

 private:
  static constexpr std::size_t kLines = 100;  // the newest
  struct Line {
    std::int64_t after = 0;  // the line before was of that step
    std::int64_t step = 0;
    std::array<double, kNames.size()> ms{};  // of the mean step
  };
  std::deque<Line> lines_;
  std::int64_t step_before_ = 0;
  std::int64_t peak_memory_ = 0;  // bytes
  std::int64_t largest_peak_memory_ = 0;
  std::int64_t skipped_ = 0;
};

// Of the end of such a file. A file that is not there tells nothing.
StepParts step_parts_of(const std::filesystem::path& metrics);

}  // namespace ddprun
