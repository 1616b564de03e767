// What became of each option and variable of torchrun: the same, better, or without effect, and why. The one source of
// --torchrun-help, of docs/torchrun.md's table (tested to be equal) and of the answer to "is this an option of torchrun?".
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ddprun {

enum class Standing { kSame, kBetter, kNoEffect };

struct TorchrunRow {
  std::string_view name;  // "nproc-per-node", or a variable's
  Standing standing = Standing::kSame;
  std::string_view why;
};

std::span<const TorchrunRow> torchrun_options();    // torchrun 2.11 to 2.15, in the order of torchrun's own --help
std::span<const TorchrunRow> torchrun_variables();  // beside PET_<NAME>

bool is_torchrun_option(std::string_view name);

// Both tables as Markdown with aligned columns.
std::string torchrun_help_text();

}  // namespace ddprun
