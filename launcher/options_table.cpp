// The rows of the option table, in the order in which --help shows them.
#include "launcher/options_table.hpp"

#include <array>

namespace ddprun {
namespace {

using Kind = OptionSpec::Kind;
using Group = OptionGroup;

constexpr std::array kTable{
    OptionSpec{"nproc-per-node",
               0,
               Kind::kValue,
               Group::kWorkers,
               "N|auto|cpu|gpu",
               "",
               "workers on this machine (config: one per GPU, else 1; script: 1)",
               {}},
    OptionSpec{"max-restarts",
               0,
               Kind::kValue,
               Group::kWorkers,
               "N|auto",
               "",
               "restarts after failures (config: 3, refilled by progress; script: 0)",
               {}},
    OptionSpec{"shutdown-timeout", 0, Kind::kValue, Group::kWorkers, "SECONDS", "30",
               "from SIGTERM to SIGKILL when workers are stopped", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},
    OptionSpec{"signals-to-handle", 0, Kind::kValue, Group::kWorkers, "LIST", "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
               "signals that stop the job in order", "TORCHELASTIC_SIGNALS_TO_HANDLE"},

    OptionSpec{"run-dir", 0, Kind::kValue, Group::kRun, "DIR", "", "where everything goes (config: runs/<name>)", {}},
    OptionSpec{"resume", 0, Kind::kValue, Group::kRun, "auto|never|PATH", "auto", "newest checkpoint, none, or this one", {}},
    OptionSpec{"fresh", 0, Kind::kFlag, Group::kRun, "", "", "start over; the old run directory is renamed, not deleted", {}},
    OptionSpec{"log-dir", 0, Kind::kValue, Group::kRun, "DIR", "", "where a script's output is kept as well", {}},

    OptionSpec{"module", 'm', Kind::kFlag, Group::kProgram, "", "", "PROGRAM is a Python module", {}},
    OptionSpec{"no-python", 0, Kind::kFlag, Group::kProgram, "", "", "PROGRAM is started as it is, looked for on PATH", {}},

    OptionSpec{"standalone", 0, Kind::kFlag, Group::kNodes, "", "", "one machine, a free port, a run id of its own", {}},
    OptionSpec{"nnodes", 0, Kind::kValue, Group::kNodes, "N|MIN:MAX", "1", "machines; this version: 1", {}},
    OptionSpec{"node-rank", 0, Kind::kValue, Group::kNodes, "N", "0", "this machine's place", {}},
    OptionSpec{"master-addr", 0, Kind::kValue, Group::kNodes, "HOST", "127.0.0.1", "address of rank 0", {}},
    OptionSpec{
        "master-port", 0, Kind::kValue, Group::kNodes, "PORT", "", "port of rank 0 (script: 29500; config: a free one)", {}},
    OptionSpec{"rdzv-backend", 0, Kind::kValue, Group::kNodes, "static|c10d", "static", "as torchrun's", {}},
    OptionSpec{"rdzv-endpoint", 0, Kind::kValue, Group::kNodes, "HOST[:PORT]", "", "as torchrun's", {}},
    OptionSpec{"rdzv-id", 0, Kind::kValue, Group::kNodes, "ID", "", "as torchrun's", {}},
    OptionSpec{"rdzv-conf", 0, Kind::kValue, Group::kNodes, "K=V,...", "", "as torchrun's", {}},
    OptionSpec{"role", 0, Kind::kValue, Group::kNodes, "NAME", "default", "role of the workers", {}},

    OptionSpec{"dry-run", 0, Kind::kFlag, Group::kOutput, "", "", "print the whole plan, start nothing", {}},
    OptionSpec{"json", 0, Kind::kFlag, Group::kOutput, "", "", "one JSON object a line", {}},
    OptionSpec{"quiet", 'q', Kind::kFlag, Group::kOutput, "", "", "errors and the end only", {}},
    OptionSpec{"verbose", 'v', Kind::kCount, Group::kOutput, "", "", "say more; twice: everything", {}},
    OptionSpec{"version", 0, Kind::kFlag, Group::kOutput, "", "", "print the version", {}},
    OptionSpec{"help", 'h', Kind::kFlag, Group::kOutput, "", "", "print this", {}},

    OptionSpec{"monitor-interval", 0, Kind::kValue, Group::kNoEffect, "SECONDS", "", "nothing polls", {}},
    OptionSpec{"start-method", 0, Kind::kValue, Group::kNoEffect, "NAME", "", "there is one way to start a process", {}},
    OptionSpec{"event-log-handler", 0, Kind::kValue, Group::kNoEffect, "NAME", "", "report.json has the events", {}},
    OptionSpec{"logs-specs", 0, Kind::kValue, Group::kNoEffect, "NAME", "", "a Python class", {}},
};

}  // namespace

std::span<const OptionSpec> option_table() {
  return kTable;
}

const OptionSpec* find_option(std::string_view name) {
  for (const OptionSpec& option : kTable) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

const OptionSpec* find_option(char letter) {
  for (const OptionSpec& option : kTable) {
    if (letter != 0 && option.letter == letter) return &option;
  }
  return nullptr;
}

std::string variable_name(std::string_view prefix, std::string_view option) {
  std::string name(prefix);
  for (const char c : option) {
    name += c == '-' ? '_' : (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  }
  return name;
}

}  // namespace ddprun
