// Stores the last lines of a stream: at most 20 lines of at most 1 KiB each. After a failure, the report and the console show
// these lines of the failed worker's stderr. console_stream.cpp adds output as it arrives. If a worker writes directly to a
// file, worker_output_files.cpp adds the end of this file. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/line_splitter.hpp"
#include "launcher/output/plain_text.hpp"

namespace ddprun {

class LastLines {
 public:
  static constexpr std::size_t kLines = 20;
  static constexpr std::size_t kLineBytes = 1024;

  // Adds a complete line, or the rest of a line that add_part() started. `line` has no '\n'.
  void add(std::string_view line) {
    lines_.push_back(with_head(line));
    if (lines_.size() > kLines) lines_.pop_front();
    head_.clear();
  }
  // Adds a part of a line whose end has not arrived yet.
  void add_part(std::string_view text) {
    if (head_.size() < kLineBytes) head_ += text.substr(0, kLineBytes);
  }
  void clear() { *this = {}; }

  // Returns the stored lines. `unfinished` is a further part of the last line, whose end has not arrived yet.
  std::vector<std::string> lines(std::string_view unfinished = {}) const {
    std::vector<std::string> lines(lines_.begin(), lines_.end());
    if (!head_.empty() || !unfinished.empty()) lines.push_back(with_head(unfinished));
    if (lines.size() > kLines) lines.erase(lines.begin());
    return lines;
  }

 private:
  std::string with_head(std::string_view text) const {
    std::string whole = head_;
    whole += text.substr(0, kLineBytes);
    if (whole.size() > kLineBytes) whole.resize(kLineBytes);
    return plain_text(visible_part(whole));
  }

  std::deque<std::string> lines_;
  std::string head_;
};

}  // namespace ddprun
