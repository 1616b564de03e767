// The last exception that Python told on a stream, found in the lines of its traceback: its type and message, and not the line
// that happened to come last, which may be anybody's farewell. Knows torch's rank prefix ("[rank0]: "), messages of several
// lines and notes, chains ("During handling of ..."), exception groups with what they hold, and syntax errors, which have no
// header. Pure; costs a look at the first bytes of a line while no traceback is under way.
// Source of the format: the documentation of Python's module traceback, and what CPython 3.9 to 3.13 print.
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
  static constexpr std::size_t kLineBytes = 512;  // looked at of one line
  static constexpr std::size_t kGroup = 8;        // exceptions of a group that are named

  // A whole line or the head of a long one; without '\n'.
  void add(std::string_view line);
  void clear() { *this = {}; }

  // "ValueError: x", with further lines of its message; of a group the first line names what it holds. Empty: none was told.
  std::string text() const;

 private:
  enum class State { kOutside, kFrames, kMessage };

  void begin(bool group);
  void add_to_group(std::string_view line);
  void message_line(std::string_view line);

  State state_ = State::kOutside;
  bool in_group_ = false;
  std::vector<std::string> message_;
  std::vector<std::string> held_;  // of a group
  std::size_t bytes_ = 0;
};

}  // namespace ddprun
