// Applies torchrun's template to script arguments, once for each worker: ${local_rank} and $local_rank become the number, $$
// becomes a dollar, and any other text after a dollar stays (TORCHRUN.md, detail 2). The agent calls it for scripts, modules
// and programs, and not for a train.json. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Like Python's string.Template.safe_substitute: "$name" and "${name}" become what `lookup` returns for the name, in one pass
// without nesting.
std::string fill_template(std::string_view text, const std::function<std::optional<std::string>(std::string_view)>& lookup);

// Fills in all words but the first, which is the interpreter or the program: torchrun leaves that alone.
std::vector<std::string> fill_arguments(std::vector<std::string> command, int local_rank);

}  // namespace ddprun
