// The names of the subcommands (launcher/commands/subcommand.hpp runs them; main() runs join itself), for messages.
#pragma once

#include <array>
#include <string_view>

namespace ddprun {

inline constexpr std::array<std::string_view, 5> kSubcommands{"validate", "report", "doctor", "token", "join"};

}  // namespace ddprun
