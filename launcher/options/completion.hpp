// --print-completion: returns a shell script that completes the subcommands, the options and the keys of a config. It is
// generated from the tables of these names. main() calls it, and the build generates the installed files with it. The code is
// pure: no I/O, no clock.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddprun {

// `shell` is bash, zsh, fish or tcsh. `program` is the name of the completed command; "torchrun" gets only torchrun's options.
// `keys` are config keys such as "optimizer.lr", which the script completes with an equals sign after an argument that ends in
// .json.
std::string completion_script(std::string_view shell, std::string_view program, std::span<const std::string> keys);

}  // namespace ddprun
