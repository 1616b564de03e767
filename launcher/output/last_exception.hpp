// Finds the type and message of the last Python exception in a stream, as the reason for a failure. The last line of the stream
// is not reliable: after the traceback, other threads and libraries often print unrelated lines.
//
// The parser handles PyTorch's rank prefix ("[rank0]: "), messages with several lines or notes, and chained exceptions ("During
// handling of ..."). It also handles exception groups, and syntax errors, which have no "Traceback" header. Outside a traceback
// it checks only the first bytes of a line, so ordinary output costs little. The code is pure: no I/O, no clock. Sources of the
// format: the documentation of Python's module `traceback`, and the output of CPython 3.9 to 3.13.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

class LastException {
 public:
  static constexpr std::size_t kLines = 10;       // maximum number of lines per message
  static constexpr std::size_t kBytes = 2048;     // maximum number of bytes per message
  static constexpr std::size_t kLineBytes = 512;  // only this many bytes of a line are read
  static constexpr std::size_t kGroup = 8;        // maximum number of group members that text() contains

  // Adds a complete line, or the first part of a long line, without '\n'.
  void add(std::string_view line);
  void clear() { *this = {}; }

  // Returns the message, such as "ValueError: x" with all its lines. For an exception group, the first line also lists the
  // exceptions in it. Returns "" if there was no exception.
  std::string text() const;

 private:
  enum class State { kOutside, kFrames, kMessage };

  void begin(bool group);
  void add_to_group(std::string_view line);
  void message_line(std::string_view line);

  State state_ = State::kOutside;
  bool in_group_ = false;
  std::vector<std::string> message_;
  std::vector<std::string> group_messages_;  // messages of the exceptions in the group
  std::size_t bytes_ = 0;
};

}  // namespace ddprun
