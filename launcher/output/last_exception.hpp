// The type and message of the last exception whose traceback Python wrote to a stream. The last line of the stream would often
// be unrelated. The parser knows torch's rank prefix ("[rank0]: "), multi-line messages and notes, chains ("During handling of
// ..."), exception groups with their members, and syntax errors, which have no header. Pure. Outside a traceback it only looks
// at the first bytes of a line. Source of the format: the documentation of Python's module traceback, and the output of CPython
// 3.9 to 3.13.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

class LastException {
 public:
  static constexpr std::size_t kLines = 10;       // lines kept per message
  static constexpr std::size_t kBytes = 2048;     // bytes kept per message
  static constexpr std::size_t kLineBytes = 512;  // bytes of a line that are used; the rest is ignored
  static constexpr std::size_t kGroup = 8;        // number of group members that are named

  // Adds a complete line, or the beginning of a long one, without '\n'.
  void add(std::string_view line);
  void clear() { *this = {}; }

  // "ValueError: x", with further lines of its message. The first line of a group names its members. Empty if there was no
  // exception.
  std::string text() const;

 private:
  enum class State { kOutside, kFrames, kMessage };

  void begin(bool group);
  void add_to_group(std::string_view line);
  void message_line(std::string_view line);

  State state_ = State::kOutside;
  bool in_group_ = false;
  std::vector<std::string> message_;
  std::vector<std::string> held_;  // messages of the group's members
  std::size_t bytes_ = 0;
};

}  // namespace ddprun
