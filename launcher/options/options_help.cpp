// --help, made from the option table so that it cannot lie. One screen: options that torchrun has and ddprun accepts without
// effect share a line, and docs/command-line.md has the rest of the story.
#include <array>

#include "launcher/options/options.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/options_torchrun.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kColumn = 34;

std::string left_side(const OptionSpec& option) {
  std::string left = "  ";
  if (option.letter != 0) left += std::string("-") + option.letter + ", ";
  left += "--" + std::string(option.name);
  if (!option.value_name.empty()) left += " " + std::string(option.value_name);
  return left;
}

// The options of torchrun's rendezvous, names only.
std::string nodes_in_short() {
  std::string text, line = "  ";
  for (const OptionSpec& option : option_table()) {
    if (option.group != OptionGroup::kNodes || option.name == "standalone" || option.name == "nnodes") continue;
    const std::string word = "--" + std::string(option.name) + " " + std::string(option.value_name);
    if (line.size() + word.size() > 100) {
      text += line + "\n";
      line = "  ";
    }
    line += (line.size() > 2 ? "  " : "") + word;
  }
  return text + line + "\n";
}

std::string names_in_short(OptionGroup group, std::string line) {
  std::string text;
  for (const OptionSpec& option : option_table()) {
    if (option.group != group) continue;
    const std::string word = "--" + std::string(option.name);
    if (line.size() + word.size() > 124) {
      text += line + "\n";
      line = " ";
    }
    line += " " + word;
  }
  return text + line + "\n";
}

// Every option of torchrun, a line each.
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
  struct Heading {
    OptionGroup group;
    const char* title;
  };
  constexpr std::array kHeadings{Heading{OptionGroup::kWorkers, "Workers"}, Heading{OptionGroup::kRun, "Run directory"},
                                 Heading{OptionGroup::kProgram, "Program"}, Heading{OptionGroup::kOutput, "Output"}};
  std::string text =
      "Usage: ddprun [options] TRAIN.json [key.path=value ...]\n"
      "       ddprun [options] PROGRAM [arguments ...]\n"
      "       ddprun validate TRAIN.json | report RUN_DIR | join HOST:PORT | token | doctor\n"
      "\n"
      "Starts one worker process per GPU (or as many as asked), restarts them when one fails, resumes from the newest "
      "checkpoint.\n"
      "\n"
      "  ddprun --nproc-per-node 2 train.json           train from a config, no Python anywhere\n"
      "  ddprun train.json optimizer.lr=0.01            the same with one value changed\n"
      "  ddprun --nproc-per-node 8 train.py --lr 0.1    any script, module (-m) or program, as with torchrun\n"
      "  ddprun --dry-run train.json                    what would be started, and where each value came from\n";
  for (const Heading& heading : kHeadings) {
    text += std::string("\n") + heading.title + "\n";
    for (const OptionSpec& option : option_table()) {
      if (option.group == heading.group) text += help_line(option);
    }
  }
  text += "\nNodes (as with torchrun; docs/many-machines.md)\n";
  for (const OptionSpec& option : option_table()) {
    if (option.name == "standalone" || option.name == "nnodes") text += help_line(option);
  }
  text += nodes_in_short();
  text += names_in_short(OptionGroup::kSeldom, "Seldom needed:");
  text += names_in_short(OptionGroup::kNoEffect, "Without effect:");
  text += "Every option is also read from DDPRUN_<NAME>, then PET_<NAME>. More: docs/command-line.md, --torchrun-help\n";
  return text;
}

}  // namespace ddprun
