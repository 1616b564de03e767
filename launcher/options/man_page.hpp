// --print-man: the manual page, generated from the tables of options and subcommands. main() calls it, and so does the build
// for the installed files. Pure.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// The page in the language of man(7). `version` is "0.1.0" or the like.
std::string man_page(std::string_view version);

}  // namespace ddprun
