// Converts argv and the environment into settings: the effective value of each option in the table, and its source. main()
// calls parse_arguments(), and plan.cpp interprets the values. The code is pure: the caller passes the environment as a
// function.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Returns the value of an environment variable, or nullopt if it is unset or empty.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;
// Returns a function that looks up variables of this process. The call checks once whether any variable starts with DDPRUN_ or
// PET_.
Environment process_environment();

struct Setting {
  std::string value;   // the value as text; "1" or "0" for a flag, and the number of repetitions for a repeated flag
  std::string source;  // for example "flag --max-restarts", "environment PET_MAX_RESTARTS" or "default"
};

// The settings of all options. An option is set by the first of these sources that exists: command line, DDPRUN_* variable,
// PET_* variable, other variable of the option, scheduler (scheduler.hpp), default in the table. If an option is repeated on
// the command line, the last value is used.
class Settings {
 public:
  Settings(std::span<const std::string> normalised_options, const Environment& environment);

  // Returns nullptr if the option is not set and has no default.
  const Setting* find(std::string_view name) const;
  bool given(std::string_view name) const;  // true if any source except the default has set the option
  void adopt(std::string_view name, Setting setting);
  std::string text(std::string_view name) const;
  bool flag(std::string_view name) const;
  // These functions throw UsageError, which contains the option, the source and the value, if the value is out of range.
  std::int64_t integer(std::string_view name, std::int64_t min, std::int64_t max) const;
  double number(std::string_view name, double min, double max) const;

 private:
  std::map<std::string, Setting, std::less<>> values_;
};

// The name under which the program was started. If it was started through a link named torchrun, it behaves like torchrun.
enum class CalledAs { kDdprun, kTorchrun };

struct Arguments {
  Settings settings;
  std::vector<std::string> positional;
  CalledAs called_as = CalledAs::kDdprun;
  std::filesystem::path called_from;  // the directory in argv[0]; empty if argv[0] contains no directory
  std::vector<std::string> warnings;  // warnings about the scheduler's values
};

// Parses the command line. `args` does not contain argv[0]. Throws UsageError.
Arguments parse_arguments(std::span<const std::string> args, const Environment& environment);

// Throws a UsageError of the form "--name: expected ..., but got 'value' (source)".
[[noreturn]] void refuse(std::string_view option, const Setting& setting, const std::string& expected);

inline constexpr const char* kNothingToRun =
    "nothing to run: name a train.json, a script or a program after the options; ddprun --help shows examples";

// Returns the text of --help: the most important options, in at most 80 columns and 30 lines. Under the name torchrun it lists
// torchrun's options.
std::string help_text(CalledAs called_as);

// Returns the text of --help-all: every option with its explanation, in at most 80 columns.
std::string long_help_text();

// Returns the line about an option in torchrun's --help: letter, name, value, meaning and default.
struct OptionSpec;
std::string help_line(const OptionSpec& option);

// Returns the text of `ddprun join --help`.
std::string join_help_text();

// The two parts of an entry of --help-all, which the manual page uses as well. left_side() returns for example "-t, --tee
// STREAMS" with an indent, and explanation() returns one or more sentences.
std::string left_side(const OptionSpec& option);
std::string explanation(const OptionSpec& option);

// Turns the words into a sentence: "print the version" becomes "Print the version."
std::string sentence(std::string_view words);

}  // namespace ddprun
