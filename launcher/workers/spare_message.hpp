// The messages of a spare interpreter to its agent. Each message is one packet: its name, then its fields, one per line.
// python/ddprun/_spare/sitecustomize.py sends them, and spare_control.cpp receives them. The code is pure: no I/O, no clock.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace ddprun::spares {

// The spare has imported all modules and waits for a script.
struct Loaded {
  double seconds = 0;             // time since the spare's start
  std::int64_t memory_bytes = 0;  // memory that the spare shares with no other process
};
// The spare can never run the script, and neither can another spare with the same command. The spare exits after this message.
struct Unfit {
  std::string why;
};
// The spare has received the script and now checks whether it can run it.
struct ScriptReceived {};
// The script runs now. If it runs in a fresh interpreter instead of the spare, `cold_start_reason` is the reason. Otherwise it
// is empty.
struct Runs {
  std::string cold_start_reason;
};
using Message = std::variant<Loaded, Unfit, ScriptReceived, Runs>;

// Returns nullopt if the packet has a different format.
inline std::optional<Message> parse_message(std::string_view packet) {
  const auto next_line = [&packet] {
    const std::string_view line = packet.substr(0, packet.find('\n'));
    packet.remove_prefix(std::min(packet.size(), line.size() + 1));
    return line;
  };
  const std::string_view name = next_line();
  if (name == "unfit") return Unfit{std::string(next_line())};
  if (name == "heard") return ScriptReceived{};
  if (name == "runs") return Runs{std::string(next_line())};
  if (name != "ready") return std::nullopt;
  const auto number = [&next_line] {
    const std::string_view line = next_line();
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    return error == std::errc() && end == line.data() + line.size() ? value : -1;
  };
  const std::int64_t milliseconds = number(), bytes = number();
  if (milliseconds < 0 || bytes < 0) return std::nullopt;
  return Loaded{static_cast<double>(milliseconds) / 1000, bytes};
}

}  // namespace ddprun::spares
