// The subcommands, for messages, help, completion and the manual page. launcher/commands/subcommand.hpp runs them, except for
// join, which main() runs.
#pragma once

#include <array>
#include <string_view>

namespace ddprun {

struct SubcommandSpec {
  std::string_view name;
  std::string_view arguments;  // as its usage line shows them
  std::string_view doc;        // one line
  std::string_view options;    // its own options, with dashes and separated by spaces; main's options are valid for join only
};

inline constexpr std::array kSubcommandTable{
    SubcommandSpec{"validate", "[--worker PROGRAM] TRAIN.json [key.path=value ...]",
                   "check a config and print it with every default filled in", "--worker"},
    SubcommandSpec{"init", "cpp FOLDER", "begin a project for a worker program of your own", ""},
    SubcommandSpec{"report", "[FOLDER] [--json | --html FILE] [--open]", "tell what happened in a run", "--json --html --open"},
    SubcommandSpec{"plot", "RUN... [--figure NAME] [--output FILE]", "draw the losses of runs over each other",
                   "--figure --output"},
    SubcommandSpec{"join", "HOST:PORT [options of this node]", "take part in a job that another node coordinates",
                   "--token-file --local-addr --interface --nproc-per-node --run-dir --role --json --quiet --verbose"},
    SubcommandSpec{"token", "[--run-dir DIR | --token-file FILE | --new FILE] [--show]", "name, make or show the job's secret",
                   "--run-dir --token-file --new --show"},
    SubcommandSpec{"doctor", "", "tell what a job on this machine will find", ""},
    SubcommandSpec{"gpus", "[--json]", "tell what the visible GPUs of this machine do", "--json"},
    SubcommandSpec{"ps", "[--json]", "list your running jobs on this machine", "--json"},
    SubcommandSpec{"status", "[JOB] [--json | --openmetrics] [--here]", "tell how far a running job is",
                   "--json --openmetrics --here"},
    SubcommandSpec{"top", "[JOB] [--here]", "show that anew each second", "--here"},
    SubcommandSpec{"stop", "[JOB] [--now] [--here]", "save and stop a running job", "--now --here"},
    SubcommandSpec{"logs", "[JOB] [-f] [--rank N] [--tail N] [--stderr] [--here]",
                   "print what workers wrote, and with -f what comes", "-f --rank --tail --stderr --here"},
    SubcommandSpec{"stacks", "[JOB] [--rank N] [--here]", "print the workers' call stacks", "--rank --here"},
    SubcommandSpec{"attach", "[JOB] --rank N [--gdb | --py-spy]", "start a debugger on a worker", "--rank --gdb --py-spy"},
    SubcommandSpec{"link-torchrun", "[FOLDER] [--force | --remove]", "make a link named torchrun, for scripts that call it",
                   "--force --remove"},
    SubcommandSpec{"help", "[SUBCOMMAND]", "print the help, or that of a subcommand", ""},
    SubcommandSpec{"version", "", "print the version", ""},
};

inline constexpr auto kSubcommands = [] {
  std::array<std::string_view, kSubcommandTable.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kSubcommandTable[i].name;
  return names;
}();

}  // namespace ddprun
