// --print-completion: a script that teaches a shell the options, made from the option table. Called by main(). Pure.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// `shell`: bash, zsh or tcsh. `program`: the name that is completed; for "torchrun" its options only.
std::string completion_script(std::string_view shell, std::string_view program);

}  // namespace ddprun
