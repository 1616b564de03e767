// Applies torchrun's template rules to script arguments, separately for each worker. ${local_rank} and $local_rank become the
// number, $$ becomes a dollar, and other text after a dollar is unchanged (TORCHRUN.md, detail 2). The agent calls it for
// scripts, modules and programs, but not for a train.json. Pure.
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

// Fills in all arguments except the first one. That is the interpreter or the program, which torchrun leaves unchanged.
std::vector<std::string> fill_arguments(std::vector<std::string> command, int local_rank);

}  // namespace ddprun
