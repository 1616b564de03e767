// The table of the launcher's options: name, value, environment variables, default, group and text for --help. The normalizer,
// the parser, --help, --dry-run and docs/command-line.md all use it, so a new option is added only here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

enum class OptionGroup { kWorkers, kRun, kProgram, kNodes, kOutput, kRare, kNoEffect };

struct OptionSpec {
  // The form of values that the parser checks; the plan checks everything else. Lower-case words in value_name, such as "auto"
  // in "N|auto", are always accepted. kWord accepts only those words.
  enum class Type { kText, kWhole, kDecimal, kWord };
  std::string_view name;  // "nproc-per-node", without dashes
  char letter;            // 'm' for -m; 0 if the option has no letter
  OptionGroup group;
  std::string_view value_name;      // "N|auto|cpu|gpu"; empty for flags
  std::string_view doc;             // one line for --help, without a final period
  std::string_view default_text{};  // the default value; empty if the plan decides
  Type type = Type::kText;
  std::string_view other_variable{};  // another variable, read after DDPRUN_* and PET_*; may be empty

  bool is_flag() const { return value_name.empty(); }  // an option without a value is a flag; users may repeat a flag
};

std::span<const OptionSpec> option_table();

// The groups with their headings, in the order of --help-all.
struct OptionGroupTitle {
  OptionGroup group;
  std::string_view title;
};
std::span<const OptionGroupTitle> option_group_titles();

// Returns the option with exactly this name or letter, or nullptr.
const OptionSpec* find_option(std::string_view name);
const OptionSpec* find_option(char letter);

// Returns the lower-case words of value_name: bash, zsh and tcsh for "bash|zsh|tcsh", and auto for "N|auto".
std::vector<std::string_view> words_of(const OptionSpec& option);

// Writes the name of the option's variable into `name`: for "nproc-per-node" with the prefix "DDPRUN_" it is
// DDPRUN_NPROC_PER_NODE. At each start, ddprun makes two names for each option, so one buffer saves about 200 allocations.
void make_variable_name(std::string& name, std::string_view prefix, std::string_view option);

}  // namespace ddprun
