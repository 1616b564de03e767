// Maps words of other tools (torchrun's relatives, PyTorch, Hugging Face and Lightning) to the option or key with the same
// meaning here. Messages about an unknown option or key use it, since edit distance cannot find these. Pure.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// A hint for an unknown key of a train.json, with a space in front: " Here it is 'optimizer.lr'." Empty if the word is unknown.
// Case, and dash or underscore, make no difference.
std::string hint_for_other_key(std::string_view word);

// The same for an unknown option without its dashes: ". Here it is --nproc-per-node".
std::string hint_for_other_option(std::string_view word);

}  // namespace ddprun
