// The curves of a run, from the lines of its metrics.jsonl, and a reader that follows a growing file. The page of `ddprun
// report` (page.hpp) shows them.
//
// A page of a running job is built every few seconds, and the file of a long run has a million lines. So the reader keeps the
// curves and its position, and reads only new lines. After a failure, the job removes the lines of the steps that it repeats,
// and appends new lines. The reader detects this, because the last line that it has read is then no longer in its place. Each
// line contains its time, so even a repeated step has a different line. The reader then reads the file again from the start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <string>
#include <vector>

#include "launcher/report/report_metrics.hpp"
#include "launcher/report/step_parts.hpp"
#include "launcher/report_page/svg.hpp"

namespace ddprun {

struct Curves {
  std::vector<svg::Point> loss, speed;                       // the x of each point is a step
  std::map<std::string, std::vector<svg::Point>> evaluated;  // metrics of evaluations and of scripts by name, without the loss
  StepParts parts;
  std::vector<double> resumed;  // steps at which training continued after a failure or a new start

  // Adds a line of the file. The lines must be added in file order. A line that is damaged or of another kind is skipped.
  void take(const std::string& line);
};

Curves curves_of(std::istream& metrics);

class CurveReader {
 public:
  explicit CurveReader(std::filesystem::path metrics) : file_(std::move(metrics)) {}
  // Reads the lines that were added since the previous call, and returns the curves of the whole file. If the file does not
  // exist or is not a regular file, there are no curves. If the last line is incomplete, the next call reads it.
  const Curves& read();

 private:
  std::filesystem::path file_;
  Curves curves_;
  std::int64_t read_ = 0;  // bytes of the lines that were read
  std::string last_;       // the last line that was read, with its '\n'
};

}  // namespace ddprun
