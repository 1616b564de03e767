// Splits a stream of bytes into lines. The bytes may arrive in pieces of any size. Each stream of each worker has its own
// splitter. Only lines that arrive in several pieces are copied. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

class LineSplitter {
 public:
  static constexpr std::size_t kMaxLineBytes = 1u << 20;

  // Calls whole(lines) at most twice, each time with one or more complete lines, each with its '\n'. If an earlier piece
  // started a line, the first call contains only that line.
  template <class Whole>
  void feed(std::string_view bytes, Whole whole) {
    const std::size_t last = bytes.rfind('\n');
    if (last == std::string_view::npos) {
      rest_ += bytes;
      return;
    }
    if (!rest_.empty()) {
      const std::size_t first = bytes.find('\n');
      rest_ += bytes.substr(0, first + 1);
      const std::string joined = std::move(rest_);
      rest_.clear();
      whole(std::string_view(joined));
      if (first < last) whole(bytes.substr(first + 1, last - first));
    } else {
      whole(bytes.substr(0, last + 1));
    }
    rest_ = bytes.substr(last + 1);
  }

  std::string_view rest() const { return rest_; }  // the part of the unfinished line that has arrived
  // Returns true if the unfinished line has reached the maximum length; the caller must then call take_rest().
  bool too_long() const { return rest_.size() >= kMaxLineBytes; }
  std::string take_rest() {
    std::string taken = std::move(rest_);
    rest_.clear();
    return taken;
  }

 private:
  std::string rest_;
};

// Returns the part of a line that a terminal would show. A '\r' moves the cursor to the start of the line, so only the text
// after the last '\r' is visible. A '\r' at the end of the line is ignored. `line` has no '\n'. The code is pure: no I/O, no
// clock.
inline std::string_view visible_part(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t carriage = line.rfind('\r');
  return carriage == std::string_view::npos ? line : line.substr(carriage + 1);
}

// Calls `act` for each line of a text, without its line end. The last line may be incomplete.
template <class Do>
void for_each_line(std::string_view text, Do act) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    act(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace ddprun
