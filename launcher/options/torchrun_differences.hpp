// Lists how ddprun treats each option and variable of torchrun (the same, better, or no effect) and the reason. --torchrun-help
// prints the list, docs/torchrun.md contains it (a test compares them), and is_torchrun_option() searches it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddprun {

enum class TorchrunSupport { kSame, kBetter, kNoEffect };

struct TorchrunRow {
  std::string_view name;  // "nproc-per-node", or the name of an environment variable
  TorchrunSupport support = TorchrunSupport::kSame;
  std::string_view why;
};

std::span<const TorchrunRow> torchrun_options();    // torchrun 2.11 to 2.15, in the order of torchrun's own --help
std::span<const TorchrunRow> torchrun_variables();  // all variables of torchrun except PET_<NAME>

bool is_torchrun_option(std::string_view name);

// Returns both tables as Markdown with aligned columns.
std::string torchrun_help_text();

}  // namespace ddprun
