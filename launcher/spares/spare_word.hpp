// The messages of a spare interpreter to its agent, one packet each: a name, then its fields, one per line. The sender is
// python/ddprun/_spare/sitecustomize.py. Pure; spare_control.cpp reads the packets.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace ddprun::spares {

// The spare has loaded everything and waits.
struct HasLoaded {
  double seconds = 0;             // time since its start
  std::int64_t memory_bytes = 0;  // memory that it shares with no other process
};
// The spare can never be used, and neither can another one like it. It ends now.
struct Unfit {
  std::string why;
};
// The spare has received the script, and checks whether it can run it.
struct HasHeard {};
// The spare runs the script. `plainly_for` is empty, or the reason why a fresh interpreter runs it instead.
struct Runs {
  std::string plainly_for;
};
using Word = std::variant<HasLoaded, Unfit, HasHeard, Runs>;

// nullopt for a packet of another form.
inline std::optional<Word> parse_word(std::string_view packet) {
  const auto next_line = [&packet] {
    const std::string_view line = packet.substr(0, packet.find('\n'));
    packet.remove_prefix(std::min(packet.size(), line.size() + 1));
    return line;
  };
  const std::string_view name = next_line();
  if (name == "unfit") return Unfit{std::string(next_line())};
  if (name == "heard") return HasHeard{};
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
  return HasLoaded{static_cast<double>(milliseconds) / 1000, bytes};
}

}  // namespace ddprun::spares
