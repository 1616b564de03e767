// --print-man: the manual page, made from the tables of options and subcommands. Called by main(), and by the build for what is
// installed. Pure.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// In the language of man(7). `version`: "0.1.0".
std::string man_page(std::string_view version);

}  // namespace ddprun
