// Splits a stream of bytes into lines. The bytes may arrive in pieces of any size. Pure; each stream of each worker has one.
// Only lines that arrive in pieces are copied, so the cost per byte is little more than a search for '\n'.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddprun {

class LineSplitter {
 public:
  static constexpr std::size_t kLongestLine = 1u << 20;

  // Calls whole(lines) with one or more complete lines, each with its '\n'. It is called at most twice; the first call has the
  // line that began in earlier pieces.
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
      const std::string begun = std::move(rest_);
      rest_.clear();
      whole(std::string_view(begun));
      if (first < last) whole(bytes.substr(first + 1, last - first));
    } else {
      whole(bytes.substr(0, last + 1));
    }
    rest_ = bytes.substr(last + 1);
  }

  std::string_view rest() const { return rest_; }  // the unfinished line
  // the unfinished line has reached the maximum length, so the caller must take it
  bool too_long() const { return rest_.size() >= kLongestLine; }
  std::string take_rest() {
    std::string taken = std::move(rest_);
    rest_.clear();
    return taken;
  }

 private:
  std::string rest_;
};

// The part of a line with '\r' updates that a terminal shows: the text after the last '\r' that is followed by text. `line` has
// no '\n'. Pure.
inline std::string_view visible_part(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t carriage = line.rfind('\r');
  return carriage == std::string_view::npos ? line : line.substr(carriage + 1);
}

}  // namespace ddprun
