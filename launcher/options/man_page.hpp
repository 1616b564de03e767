// --print-man: returns the manual page, generated from the tables of options and subcommands. main() calls it, and the build
// generates the installed file with it. The code is pure: no I/O, no clock.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// Returns the page in the format of man(7). `version` is for example "0.1.0".
std::string man_page(std::string_view version);

}  // namespace ddprun
