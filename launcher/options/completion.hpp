// --print-completion: a script that teaches a shell the subcommands, the options and the keys of a config, made from the
// tables. Called by main(), and by the build for what is installed. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddprun {

// `shell`: bash, zsh, fish or tcsh. `program`: the name that is completed; for "torchrun" its options only. `keys`: what may
// stand before the equals sign after a .json, "optimizer.lr".
std::string completion_script(std::string_view shell, std::string_view program, std::span<const std::string> keys);

}  // namespace ddprun
