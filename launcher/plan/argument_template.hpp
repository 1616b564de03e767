// Script arguments go through torchrun's template once for each worker: ${local_rank} and $local_rank become the number, $$ a
// dollar, and anything else that begins with a dollar stays as it is (TORCHRUN.md, detail 2). The agent calls it for scripts,
// modules and programs; a train.json's worker gets none. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Python's string.Template.safe_substitute: "$name" and "${name}" become what `lookup` has for the name, one pass, no nesting.
std::string fill_template(std::string_view text, const std::function<std::optional<std::string>(std::string_view)>& lookup);

// All words but the first: that is the interpreter or the program, which torchrun leaves alone.
std::vector<std::string> fill_arguments(std::vector<std::string> command, int local_rank);

}  // namespace ddprun
