// --help and --help-all, generated from the option table so that they are always correct. --help is one small screen with the
// most important options, --help-all lists all of them. docs/command-line.md has further details.
#include <algorithm>
#include <array>

#include "launcher/options/options.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/options_torchrun.hpp"
#include "launcher/options/subcommand_names.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kColumn = 34;       // column of the descriptions in torchrun's help
constexpr std::size_t kShortColumn = 38;  // column of the descriptions in --help, which fits 80 columns and 30 lines

// The rows of --help.
struct InShort {
  std::string_view option;
  std::string_view doc;
};
constexpr std::array kInShort{InShort{"nproc-per-node", "workers on this machine"},
                              InShort{"max-restarts", "how often failed workers start again"},
                              InShort{"hang-timeout", "without progress, a worker hangs"},
                              InShort{"nnodes", "machines; ddprun join is simpler"},
                              InShort{"run-dir", "where everything goes (runs/<name>)"},
                              InShort{"fresh", "start over in a new run directory"},
                              InShort{"module", "PROGRAM is a Python module"},
                              InShort{"no-python", "PROGRAM is started as it is"},
                              InShort{"tee", "also to log files: 1 out, 2 err, 3 both"},
                              InShort{"dry-run", "print the whole plan, start nothing"},
                              InShort{"json", "one JSON object a line"},
                              InShort{"quiet", "errors and the end only"},
                              InShort{"verbose", "say more; twice: everything"},
                              InShort{"version", "print the version"},
                              InShort{"help", "print this"}};

// Wraps into lines of at most 80 columns with an indent of six.
std::string wrapped(std::string_view words) {
  constexpr std::size_t kWidth = 80;
  std::string text, line = "     ";
  while (!words.empty()) {
    const std::size_t space = words.find(' ');
    const std::string_view word = words.substr(0, space);
    if (line.size() > 6 && line.size() + 1 + word.size() > kWidth) {
      text += line + "\n";
      line = "     ";
    }
    line.append(" ").append(word);
    words.remove_prefix(space == std::string_view::npos ? words.size() : space + 1);
  }
  return text + line + "\n";
}

// Every option of torchrun, one per line.
std::string torchruns_help() {
  std::string text =
      "Usage: torchrun [options] SCRIPT [arguments ...]\n"
      "\n"
      "Starts workers and restarts them when one fails. This is ddprun under torchrun's name;\n"
      "what differs is told by ddprun --torchrun-help.\n"
      "\n";
  for (const OptionSpec& option : option_table()) {
    if (is_torchrun_option(option.name)) text += help_line(option);
  }
  return text + "\nEvery option is also read from PET_<NAME>.\n";
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
  if (called_as == CalledAs::kTorchrun) return torchruns_help();
  std::string text =
      "Usage: ddprun [options] TRAIN.json [key.path=value ...] [options]\n"
      "       ddprun [options] PROGRAM [arguments ...]\n"
      "       ddprun ps | status | top | logs | stop | stacks | attach   (running jobs)\n"
      "       ddprun validate|report|join|token|doctor|link-torchrun  (each has --help)\n"
      "\n"
      "Starts one worker process per GPU (or as many as asked), restarts them when one\n"
      "fails, resumes from the newest checkpoint.\n"
      "\n"
      "  ddprun --nproc-per-node 2 train.json         train from a config, no Python\n"
      "  ddprun train.json optimizer.lr=0.01          the same with one value changed\n"
      "  ddprun --nproc-per-node 8 train.py --lr 0.1  any script, -m module or program\n"
      "  ddprun --dry-run train.json                  what would be started, and why\n"
      "\n";
  for (const InShort& line : kInShort) {
    std::string row = left_side(*find_option(line.option));
    row.resize(std::max(row.size() + 1, kShortColumn), ' ');
    text += row + std::string(line.doc) + "\n";
  }
  return text + "\nEvery option: ddprun --help-all. Each also has a variable, DDPRUN_<NAME>.\n";
}

std::string long_help_text() {
  std::string text =
      "Usage: ddprun [options] TRAIN.json [key.path=value ...] [options]\n       ddprun [options] PROGRAM [arguments ...]\n";
  text += "\nSubcommands, as the first argument only\n";
  for (const SubcommandSpec& each : kSubcommandTable) {
    text += "  ddprun " + std::string(each.name) + (each.arguments.empty() ? "" : " " + std::string(each.arguments)) + "\n";
    text += wrapped(std::string(each.doc) + ".");
  }
  for (const OptionGroupTitle& group : option_group_titles()) {
    text += "\n" + std::string(group.title) + "\n";
    for (const OptionSpec& option : option_table()) {
      if (option.group == group.group) text += left_side(option) + "\n" + wrapped(explanation(option));
    }
  }
  return text + "\nEvery option is also read from DDPRUN_<NAME>, then PET_<NAME>.\nMore: docs/command-line.md.\n";
}

std::string join_help_text() {
  const auto join = std::find_if(kSubcommandTable.begin(), kSubcommandTable.end(),
                                 [](const SubcommandSpec& each) { return each.name == "join"; });
  std::string text = "usage: ddprun join " + std::string(join->arguments) + "\n" + sentence(join->doc) +
                     " It runs\nthe command of that node. HOST:PORT and FILE stand on that node's console.\n\n";
  std::string_view rest = join->options;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    const OptionSpec& option = *find_option(word.substr(2));
    text += left_side(option) + "\n" + wrapped(explanation(option));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  }
  return text + "\nOther options of this node are accepted as well: ddprun --help-all.\n";
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
  if (!option.other_variable.empty()) text += " Also " + std::string(option.other_variable) + ".";
  return text;
}

}  // namespace ddprun
