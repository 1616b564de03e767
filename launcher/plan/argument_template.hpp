// Applies torchrun's template rules to the arguments of each worker's command. $local_rank and ${local_rank} become the
// worker's local rank, and $$ becomes a single dollar sign. Any other text after a dollar sign is unchanged
// (docs/internals/torchrun-contract.md). The agent applies the rules to scripts, modules and programs, but not to jobs with a
// train.json. The code is pure: no I/O, no clock.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Replaces "$name" and "${name}" by the value that `lookup` returns, like Python's string.Template.safe_substitute. A name for
// which `lookup` returns nullopt is unchanged. Substituted text is not scanned again.
std::string fill_template(std::string_view text, const std::function<std::optional<std::string>(std::string_view)>& lookup);

// Applies the template rules to all arguments except command[0], which is the interpreter or the program. torchrun leaves it
// unchanged too.
std::vector<std::string> fill_arguments(std::vector<std::string> command, int local_rank);

}  // namespace ddprun
