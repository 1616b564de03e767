// Converts argv and the environment into settings: the effective value of each option in the table, and its source. main()
// calls it; plan.cpp interprets the values. Pure: the caller passes the environment in.
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

// Looks up an environment variable. Empty values count as unset.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;
Environment process_environment();

struct Setting {
  std::string value;   // flags: "1" or "0"; counts: a number
  std::string source;  // "flag --max-restarts", "environment PET_MAX_RESTARTS", "default"
};

// The first of these that is set takes precedence: flag, DDPRUN_*, PET_*, the option's other variable, the scheduler's value
// (scheduler.hpp), the table's default. If a flag is repeated, the last one counts.
class Settings {
 public:
  Settings(std::span<const std::string> normalised_options, const Environment& environment);

  // nullptr if the option is not set and the table has no default.
  const Setting* find(std::string_view name) const;
  bool given(std::string_view name) const;  // set by any source except the default
  void adopt(std::string_view name, Setting setting);
  std::string text(std::string_view name) const;
  bool flag(std::string_view name) const;
  // These throw UsageError naming option, source and value.
  std::int64_t integer(std::string_view name, std::int64_t min, std::int64_t max) const;
  double number(std::string_view name, double min, double max) const;

 private:
  std::map<std::string, Setting, std::less<>> values_;
};

// The name by which the program was started. If a link named torchrun starts it, it behaves like torchrun.
enum class CalledAs { kDdprun, kTorchrun };

struct Arguments {
  Settings settings;
  std::vector<std::string> positional;
  CalledAs called_as = CalledAs::kDdprun;
  std::filesystem::path called_from;  // the folder in argv[0]; empty if the program was found on PATH
  std::vector<std::string> warnings;  // warnings about the scheduler's values
};

// `args` are without argv[0]. Throws UsageError.
Arguments parse_arguments(std::span<const std::string> args, const Environment& environment);

// Throws UsageError("--name: expected ..., but got 'value' (source)").
[[noreturn]] void refuse(std::string_view option, const Setting& setting, const std::string& expected);

inline constexpr const char* kNothingToRun =
    "nothing to run: name a train.json, a script or a program after the options; ddprun --help shows examples";

// The text of --help: the most important options, in 80 columns and 30 lines. Under the name torchrun it is torchrun's text.
std::string help_text(CalledAs called_as);

// The text of --help-all: every option with its explanation, in 80 columns.
std::string long_help_text();

// A line of torchrun's --help: letter, name, value, meaning and default.
struct OptionSpec;
std::string help_line(const OptionSpec& option);

// The text of `ddprun join --help`.
std::string join_help_text();

// The two parts of an entry of --help-all, for the manual page: "  -t, --tee STREAMS", and one or more sentences.
std::string left_side(const OptionSpec& option);
std::string explanation(const OptionSpec& option);

// "print the version" becomes "Print the version."
std::string sentence(std::string_view words);

}  // namespace ddprun
