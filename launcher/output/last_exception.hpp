// The last exception whose traceback Python wrote to a stream: its type and message. The stream's very last line would often be
// something else. Knows torch's rank prefix ("[rank0]: "), messages of several lines and notes, chains ("During handling of
// ..."), exception groups with their members, and syntax errors, which have no header. Pure; outside a traceback it only looks
// at the first bytes of a line. Source of the format: the documentation of Python's module traceback, and what CPython 3.9 to
// 3.13 print.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

class LastException {
 public:
  static constexpr std::size_t kLines = 10;       // of one message
  static constexpr std::size_t kBytes = 2048;     // of one message
  static constexpr std::size_t kLineBytes = 512;  // of one line; the rest is ignored
  static constexpr std::size_t kGroup = 8;        // so many exceptions of a group are named

  // A complete line, or the beginning of a long one; without '\n'.
  void add(std::string_view line);
  void clear() { *this = {}; }

  // "ValueError: x", with further lines of its message. A group's first line names its members. Empty: there was no exception.
  std::string text() const;

 private:
  enum class State { kOutside, kFrames, kMessage };

  void begin(bool group);
  void add_to_group(std::string_view line);
  void message_line(std::string_view line);

  State state_ = State::kOutside;
  bool in_group_ = false;
  std::vector<std::string> message_;
  std::vector<std::string> held_;  // what a group's members said
  std::size_t bytes_ = 0;
};

}  // namespace ddprun
