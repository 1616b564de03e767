// Maps options and keys of other tools (such as torchrun, Accelerate, Hugging Face and Lightning) to the option or key of
// ddprun with the same meaning. Messages about an unknown option or key use this mapping. A search by edit distance would not
// find the option or key of ddprun, because the names are too different. The code is pure: no I/O, no clock.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// Returns a hint for an unknown key of a train.json, with a space at the start, such as " In ddprun it is 'optimizer.lr'." The
// result is empty if the name is not in the table. Upper and lower case are equal, and a dash equals an underscore.
std::string hint_for_foreign_key(std::string_view name);

// Returns a hint for an unknown option, which is passed without its dashes. An example is ". In ddprun it is
// --nproc-per-node".
std::string hint_for_foreign_option(std::string_view name);

}  // namespace ddprun
