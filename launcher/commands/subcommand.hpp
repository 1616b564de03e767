// The subcommands' arguments and functions. main() calls run_subcommand(). A name is a subcommand only as the first argument
// (decision 29). A new subcommand needs a row here, a row in launcher/options/subcommand_names.hpp, and a file with its
// function. A subcommand prints to stdout and returns an exit code; it throws UsageError for wrong arguments.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/subcommand_names.hpp"

namespace ddprun {

// Returns a line such as "usage: ddprun ps [--json]".
std::string usage_of(const SubcommandSpec& spec);
// Returns the text of `ddprun SUBCOMMAND --help`.
std::string help_of(const SubcommandSpec& spec);

// The arguments of a subcommand, parsed as its row in kSubcommandTable (launcher/options/subcommand_names.hpp) specifies. A
// subcommand queries options by name.
class SubcommandArguments {
 public:
  // Throws UsageError for an option that `spec` does not list. If spec.takes_command is true, all arguments become words, and
  // the subcommand parses its options itself.
  SubcommandArguments(const SubcommandSpec& spec, std::span<const std::string> args);

  bool help() const { return help_; }
  bool has(std::string_view option) const;
  // Returns how often these options were given in total.
  int count(std::span<const std::string_view> options) const;
  // Returns the last value of the option; nullopt if the option is not given, or is given without its optional value. Throws
  // UsageError if the value is empty, or a value that is not optional is missing ("--new needs a path").
  std::optional<std::string> value(std::string_view option, std::string_view expected = "a value") const;
  // Returns the last value of the option, as an integer from 0 to 10^9; nullopt if the option is not given. Throws UsageError
  // for any other value.
  std::optional<int> number(std::string_view option) const;

  // Returns the given options as words, such as "--rank=3", except the option `except`. A command line for another node
  // contains them.
  std::vector<std::string> option_words(std::string_view except) const;

  // Returns the arguments that are not options. If spec.takes_command is true, these are all arguments. If spec.starts_program
  // is true, these are all arguments from the first one that is not an option, or all after "--".
  const std::vector<std::string>& words() const { return words_; }
  void refuse_words(std::size_t from = 0) const;  // throws UsageError if there are more than `from` non-option arguments
  // Returns the only argument that is not an option; "" if there is none. `name`: its name in the usage text. Throws
  // UsageError if the argument is empty or if there are several.
  std::string only_word(std::string_view name) const;

  // Throws UsageError with `problem`, followed by the usage text.
  [[noreturn]] void refuse(const std::string& problem) const;
  // Throws UsageError if both options are given.
  void refuse_both(std::string_view one, std::string_view other) const;
  std::string usage() const { return usage_of(spec_); }

 private:
  const SubcommandSpec& spec_;
  bool help_ = false;
  std::vector<std::string> words_;
  using GivenOption = std::pair<std::string, std::optional<std::string>>;  // name and value
  std::vector<GivenOption> options_;                                       // in the order of the command line
};

// Runs args[0] if it is a subcommand; returns nullopt otherwise. main() itself runs `join`.
std::optional<int> run_subcommand(std::span<const std::string> args);

int show_help(const SubcommandArguments& arguments);
int show_version(const SubcommandArguments& arguments);
int validate_config(const SubcommandArguments& arguments);
int init_project(const SubcommandArguments& arguments);
int show_report(const SubcommandArguments& arguments);
int plot_runs(const SubcommandArguments& arguments);
int examine_machine(const SubcommandArguments& arguments);
int show_gpus(const SubcommandArguments& arguments);
int list_jobs(const SubcommandArguments& arguments);
int show_status(const SubcommandArguments& arguments);
int watch_job(const SubcommandArguments& arguments);
int stop_job(const SubcommandArguments& arguments);
int show_logs(const SubcommandArguments& arguments);
int show_stacks(const SubcommandArguments& arguments);
int attach_to_worker(const SubcommandArguments& arguments);
int show_token(const SubcommandArguments& arguments);
int submit_job(const SubcommandArguments& arguments);
int link_torchrun(const SubcommandArguments& arguments);

struct SubcommandFunction {
  std::string_view name;
  int (*run)(const SubcommandArguments& arguments);
};
inline constexpr std::array kSubcommandFunctions{SubcommandFunction{"help", show_help},
                                                 SubcommandFunction{"version", show_version},
                                                 SubcommandFunction{"validate", validate_config},
                                                 SubcommandFunction{"init", init_project},
                                                 SubcommandFunction{"report", show_report},
                                                 SubcommandFunction{"plot", plot_runs},
                                                 SubcommandFunction{"doctor", examine_machine},
                                                 SubcommandFunction{"gpus", show_gpus},
                                                 SubcommandFunction{"ps", list_jobs},
                                                 SubcommandFunction{"status", show_status},
                                                 SubcommandFunction{"top", watch_job},
                                                 SubcommandFunction{"stop", stop_job},
                                                 SubcommandFunction{"logs", show_logs},
                                                 SubcommandFunction{"stacks", show_stacks},
                                                 SubcommandFunction{"attach", attach_to_worker},
                                                 SubcommandFunction{"token", show_token},
                                                 SubcommandFunction{"submit", submit_job},
                                                 SubcommandFunction{"link-torchrun", link_torchrun}};

}  // namespace ddprun
