// --print-completion: a shell script that completes the subcommands, the options and the keys of a config. It is generated from
// their tables. main() calls it, and so does the build for the installed files. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddprun {

// `shell` is bash, zsh, fish or tcsh. `program` is the command to complete; "torchrun" gets torchrun's options only. `keys` are
// config keys such as "optimizer.lr", which may precede an equals sign after a .json.
std::string completion_script(std::string_view shell, std::string_view program, std::span<const std::string> keys);

}  // namespace ddprun
