// --help and --help-all. Both are generated from the option table, so they always match the parser. --help shows the most
// important options on one small screen, and --help-all shows all options. docs/command-line.md contains further details.
#include <algorithm>
#include <array>

#include "common/base/split.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/subcommand_names.hpp"
#include "launcher/options/torchrun_differences.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kColumn = 34;       // column of the descriptions in torchrun's help
constexpr std::size_t kShortColumn = 38;  // column of the descriptions in --help; fits 80 columns

// The rows of --help.
struct ShortHelp {
  std::string_view option;
  std::string_view doc;
};
constexpr std::array kShortHelp{ShortHelp{"nproc-per-node", "workers on this machine"},
                                ShortHelp{"max-restarts", "restarts after failures"},
                                ShortHelp{"hang-timeout", "longest time without progress"},
                                ShortHelp{"nnodes", "number of machines (or use ddprun join)"},
                                ShortHelp{"run-dir", "folder for all output (runs/<name>)"},
                                ShortHelp{"fresh", "start over in a new run directory"},
                                ShortHelp{"module", "PROGRAM is a Python module"},
                                ShortHelp{"no-python", "PROGRAM is started directly"},
                                ShortHelp{"tee", "also write log files: 1 out, 2 err, 3 both"},
                                ShortHelp{"dry-run", "print the whole plan, start nothing"},
                                ShortHelp{"json", "print one JSON object per line"},
                                ShortHelp{"quiet", "print errors and the result only"},
                                ShortHelp{"verbose", "print more; twice: everything"},
                                ShortHelp{"version", "print the version"},
                                ShortHelp{"help", "print this help"}};

// Wraps the words into lines of at most 80 columns, each with an indent of six spaces.
std::string wrapped(std::string_view words) {
  constexpr std::size_t kWidth = 80;
  std::string text, line = "     ";
  for (const std::string_view word : split(words, ' ')) {
    if (line.size() > 6 && line.size() + 1 + word.size() > kWidth) {
      text += line + "\n";
      line = "     ";
    }
    line.append(" ").append(word);
  }
  return text + line + "\n";
}

// Returns torchrun's --help, with one line for each option of torchrun.
std::string torchrun_style_help() {
  std::string text =
      "Usage: torchrun [options] SCRIPT [arguments ...]\n"
      "\n"
      "Starts workers and restarts them when one fails. This is ddprun under torchrun's name;\n"
      "`ddprun --torchrun-help` lists the differences.\n"
      "\n";
  for (const OptionSpec& option : option_table()) {
    if (is_torchrun_option(option.name)) text += help_line(option);
  }
  return text + "\nEvery option can also be set by the environment variable PET_<NAME>.\n";
}

}  // namespace

std::string left_side(const OptionSpec& option) {
  std::string left = "  ";
  if (option.letter != 0) left += std::string("-") + option.letter + ", ";
  left += "--" + std::string(option.name);
  if (!option.value_name.empty()) left += " " + std::string(option.value_name);
  return left;
}

std::string help_line(const OptionSpec& option) {
  std::string line = left_side(option);
  line.resize(std::max(line.size() + 1, kColumn), ' ');
  line += option.doc;
  if (!option.default_text.empty() && option.group != OptionGroup::kNodes && option.name != "signals-to-handle") {
    line += " [" + std::string(option.default_text) + "]";
  }
  return line + "\n";
}

std::string help_text(CalledAs called_as) {
  if (called_as == CalledAs::kTorchrun) return torchrun_style_help();
  std::string text =
      "Usage: ddprun [options] TRAIN.json [key.path=value ...] [options]\n"
      "       ddprun [options] PROGRAM [arguments ...]\n"
      "       ddprun ps | status | top | logs | stop | stacks | attach   (running jobs)\n"
      "       ddprun validate|report|join|token|doctor|link-torchrun  (each has --help)\n"
      "\n"
      "Starts one worker process per GPU (or the requested number), restarts them when\n"
      "one fails, and resumes from the newest checkpoint.\n"
      "\n"
      "  ddprun --nproc-per-node 2 train.json         train from a config, no Python\n"
      "  ddprun train.json optimizer.lr=0.01          the same with one value changed\n"
      "  ddprun --nproc-per-node 8 train.py --lr 0.1  any script, -m module or program\n"
      "  ddprun --dry-run train.json                  what would be started, and why\n"
      "\n";
  for (const ShortHelp& line : kShortHelp) {
    std::string row = left_side(*find_option(line.option));
    row.resize(std::max(row.size() + 1, kShortColumn), ' ');
    text += row + std::string(line.doc) + "\n";
  }
  return text + "\nAll options: ddprun --help-all. Each has an environment variable DDPRUN_<NAME>.\n";
}

namespace {

// Returns the usage of a subcommand in lines of at most 80 columns.
std::string usage_lines(const SubcommandSpec& spec) {
  constexpr std::size_t kColumns = 80;
  std::string text;
  std::string line = "  ddprun " + std::string(spec.name);
  for (const std::string_view word : split(spec.arguments, ' ')) {
    if (line.size() + 1 + word.size() > kColumns) {
      text += line + "\n";
      line = "     ";
    }
    if (!word.empty()) line += " " + std::string(word);
  }
  return text + line + "\n";
}

}  // namespace

std::string long_help_text() {
  std::string text =
      "Usage: ddprun [options] TRAIN.json [key.path=value ...] [options]\n       ddprun [options] PROGRAM [arguments ...]\n";
  text += "\nSubcommands, as the first argument only\n";
  for (const SubcommandSpec& each : kSubcommandTable) {
    text += usage_lines(each);
    text += wrapped(std::string(each.doc) + ".");
  }
  for (const OptionGroupTitle& group : option_group_titles()) {
    text += "\n" + std::string(group.title) + "\n";
    for (const OptionSpec& option : option_table()) {
      if (option.group == group.group) text += left_side(option) + "\n" + wrapped(explanation(option));
    }
  }
  return text +
         "\nEvery option can also be set by the environment variable DDPRUN_<NAME> or\n"
         "PET_<NAME>; DDPRUN_<NAME> takes precedence. More: docs/command-line.md.\n";
}

std::string join_help_text() {
  const SubcommandSpec* const join = find_subcommand("join");
  std::string text = "usage: ddprun join " + std::string(join->arguments) + "\n" + sentence(join->doc) +
                     " It runs the same\ncommand as that node, whose console shows HOST:PORT and FILE.\n\n";
  for (const std::string_view word : split(join->options, ' ')) {
    const OptionSpec& option = *find_option(word.substr(2));
    text += left_side(option) + "\n" + wrapped(explanation(option));
  }
  return text + "\nOther options of this node are also accepted: ddprun --help-all.\n";
}

std::string sentence(std::string_view words) {
  std::string text(words);
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text + ".";
}

std::string explanation(const OptionSpec& option) {
  std::string text =
      option.group == OptionGroup::kNoEffect ? "Without effect: " + std::string(option.doc) + "." : sentence(option.doc);
  if (!option.default_text.empty()) text += " Default: " + std::string(option.default_text) + ".";
  if (!option.other_variable.empty()) text += " Also read from " + std::string(option.other_variable) + ".";
  return text;
}

}  // namespace ddprun
