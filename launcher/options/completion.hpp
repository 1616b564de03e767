// --print-completion: a script that teaches a shell the subcommands, the options and the keys of a config, made from their
// tables. main() calls it, and so does the build for the installed files. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddprun {

// `shell` is bash, zsh, fish or tcsh. `program` is the name that is completed; "torchrun" gets torchrun's options only. `keys`
// may stand before the equals sign after a .json, such as "optimizer.lr".
std::string completion_script(std::string_view shell, std::string_view program, std::span<const std::string> keys);

}  // namespace ddprun
