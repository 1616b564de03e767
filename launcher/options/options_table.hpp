// The single table of the launcher's options: name, value, environment variables, default, group and text for --help. The
// normaliser, the parser, --help, --dry-run and docs/command-line.md are all based on it, so a new option is added only here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

enum class OptionGroup { kWorkers, kRun, kProgram, kNodes, kOutput, kSeldom, kNoEffect };

struct OptionSpec {
  enum class Kind { kValue, kFlag, kCount };
  // The parser checks values by these types; the plan checks everything else. A lower-case word in value_name, as "auto" in
  // "N|auto", is always accepted. kWord accepts only such words.
  enum class Type { kText, kWhole, kDecimal, kWord };
  std::string_view name;  // "nproc-per-node", without dashes
  char letter = 0;        // 'm' for -m; 0: none
  Kind kind = Kind::kValue;
  OptionGroup group = OptionGroup::kRun;
  std::string_view value_name;      // "N|auto|cpu|gpu"; empty for flags
  std::string_view default_text;    // the default value; empty: the plan decides
  std::string_view doc;             // one line for --help
  std::string_view other_variable;  // a further variable, read after DDPRUN_* and PET_*; may be empty
  Type type = Type::kText;
};

std::span<const OptionSpec> option_table();

// The groups in the order of --help-all, with their headings.
struct OptionGroupTitle {
  OptionGroup group;
  std::string_view title;
};
std::span<const OptionGroupTitle> option_group_titles();

// The option with exactly that name, or nullptr.
const OptionSpec* find_option(std::string_view name);
const OptionSpec* find_option(char letter);

// "bash|zsh|tcsh" -> bash, zsh, tcsh; "N|auto" -> auto.
std::vector<std::string_view> words_of(const OptionSpec& option);

// "nproc-per-node" -> "DDPRUN_NPROC_PER_NODE" with prefix "DDPRUN_".
std::string variable_name(std::string_view prefix, std::string_view option);

}  // namespace ddprun
