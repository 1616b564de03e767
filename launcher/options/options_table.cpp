// The rows of the option table, in the order in which --help shows them.
#include "launcher/options/options_table.hpp"

#include <array>

namespace ddprun {
namespace {

using Kind = OptionSpec::Kind;
using Type = OptionSpec::Type;
using Group = OptionGroup;

constexpr std::array kTable{
    OptionSpec{"nproc-per-node",
               0,
               Kind::kValue,
               Group::kWorkers,
               "N|auto|cpu|gpu|xpu",
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
               {},
               Type::kWhole},
    OptionSpec{"recovery",
               0,
               Kind::kValue,
               Group::kWorkers,
               "live|checkpoint",
               "",
               "after a loss, the others of ddptrain or a C++ loop keep their state (one machine: live), or all start anew",
               {},
               Type::kWord},
    OptionSpec{"standby",
               0,
               Kind::kValue,
               Group::kSeldom,
               "N",
               "",
               "processes that wait, loaded, to take the place of lost workers",
               {},
               Type::kWhole},
    OptionSpec{"preload",
               0,
               Kind::kValue,
               Group::kSeldom,
               "MODULES",
               "torch,torch._dynamo",
               "what a script's --standby interpreters have imported",
               {}},
    OptionSpec{
        "restart-policy", 0, Kind::kValue, Group::kWorkers, "FILE", "", "budgets by cause, pauses: docs/failures.md", {}},
    OptionSpec{"shutdown-timeout", 0, Kind::kValue, Group::kWorkers, "SECONDS", "30",
               "from SIGTERM to SIGKILL when workers are stopped", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", Type::kDecimal},
    OptionSpec{"hang-timeout",
               0,
               Kind::kValue,
               Group::kWorkers,
               "SECONDS|auto|off",
               "",
               "without progress, a worker hangs (config: auto; script: off)",
               {}},
    OptionSpec{"signals-to-handle", 0, Kind::kValue, Group::kSeldom, "LIST", "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
               "signals that stop the job in order", "TORCHELASTIC_SIGNALS_TO_HANDLE"},

    OptionSpec{"run-dir", 0, Kind::kValue, Group::kRun, "DIR", "", "where everything goes (config: runs/<name>)", {}},
    OptionSpec{"resume", 0, Kind::kValue, Group::kRun, "auto|never|PATH", "auto", "newest checkpoint, none, or this one", {}},
    OptionSpec{"fresh", 0, Kind::kFlag, Group::kRun, "", "", "start over; the old run directory is renamed, not deleted", {}},
    OptionSpec{
        "data-changed", 0, Kind::kFlag, Group::kSeldom, "", "", "go on although the data is not what the run began with", {}},

    OptionSpec{"worker", 0, Kind::kValue, Group::kSeldom, "PROGRAM", "", "what trains a train.json in place of ddptrain", {}},

    OptionSpec{"module", 'm', Kind::kFlag, Group::kProgram, "", "", "PROGRAM is a Python module", {}},
    OptionSpec{"no-python", 0, Kind::kFlag, Group::kProgram, "", "", "PROGRAM is started as it is, looked for on PATH", {}},
    OptionSpec{"log-dir", 0, Kind::kValue, Group::kProgram, "DIR", "", "folder of a script's log files", {}},
    OptionSpec{"redirects",
               'r',
               Kind::kValue,
               Group::kProgram,
               "STREAMS",
               "0",
               "to files, not here: 1 stdout, 2 stderr, 3 both; 0:1,1:2 by local rank",
               {}},
    OptionSpec{
        "tee", 't', Kind::kValue, Group::kProgram, "STREAMS", "0", "to files and, marked with the rank, here as well", {}},

    OptionSpec{"standalone", 0, Kind::kFlag, Group::kNodes, "", "", "one machine, a free port, a run id of its own", {}},
    OptionSpec{"nnodes", 0, Kind::kValue, Group::kNodes, "N|MIN:MAX", "1", "machines, or how few and how many of them", {}},
    OptionSpec{"node-rank", 0, Kind::kValue, Group::kNodes, "N", "", "this machine's place", {}, Type::kWhole},
    OptionSpec{"master-addr", 0, Kind::kValue, Group::kNodes, "HOST", "127.0.0.1", "address of rank 0", {}},
    OptionSpec{"master-port",
               0,
               Kind::kValue,
               Group::kNodes,
               "PORT",
               "",
               "port of rank 0 (script: 29500, or a free one where that is taken; config: a free one)",
               {},
               Type::kWhole},
    OptionSpec{"local-addr", 0, Kind::kValue, Group::kNodes, "HOST", "", "address of this machine", {}},
    OptionSpec{"rdzv-backend", 0, Kind::kValue, Group::kNodes, "static|c10d", "static", "how machines meet", {}},
    OptionSpec{"rdzv-endpoint", 0, Kind::kValue, Group::kNodes, "HOST[:PORT]", "", "where machines meet", {}},
    OptionSpec{"rdzv-id", 0, Kind::kValue, Group::kNodes, "ID", "", "run id (script: none; config: its name)", {}},
    OptionSpec{"rdzv-conf", 0, Kind::kValue, Group::kNodes, "K=V,...", "", "timeouts of the meeting", {}},
    OptionSpec{"token-file", 0, Kind::kValue, Group::kNodes, "FILE", "", "the job's secret; ddprun token makes one", {}},
    OptionSpec{"force-new-job",
               0,
               Kind::kFlag,
               Group::kSeldom,
               "",
               "",
               "no earlier start of this job runs on any machine: do not look",
               {}},
    OptionSpec{"arbiter",
               0,
               Kind::kValue,
               Group::kSeldom,
               "etcd://HOST:PORT",
               "",
               "which of two nodes goes on alone (--nnodes 1:MAX)",
               {}},
    OptionSpec{"role", 0, Kind::kValue, Group::kNodes, "NAME", "default", "role of the workers", {}},

    OptionSpec{"dry-run", 0, Kind::kFlag, Group::kOutput, "", "", "print the whole plan, start nothing", {}},
    OptionSpec{"json", 0, Kind::kFlag, Group::kOutput, "", "", "one JSON object a line", {}},
    OptionSpec{"quiet", 'q', Kind::kFlag, Group::kOutput, "", "", "errors and the end only", {}},
    OptionSpec{"verbose", 'v', Kind::kCount, Group::kOutput, "", "", "say more; twice: everything", {}},
    OptionSpec{"version", 'V', Kind::kFlag, Group::kOutput, "", "", "print the version", {}},
    OptionSpec{"torchrun-help",
               0,
               Kind::kFlag,
               Group::kOutput,
               "",
               "",
               "torchrun's options and variables: same, better, without effect",
               {}},
    OptionSpec{"help", 'h', Kind::kFlag, Group::kOutput, "", "", "print the options that are needed most", {}},
    OptionSpec{"help-all", 0, Kind::kFlag, Group::kOutput, "", "", "print every option with what it does", {}},

    OptionSpec{
        "chaos", 0, Kind::kValue, Group::kSeldom, "FAULTS", "", "rehearse: \"kill rank=1 step=100; hang rank=0 step=200\"", {}},
    OptionSpec{"on-failure",
               0,
               Kind::kValue,
               Group::kSeldom,
               "COMMAND",
               "",
               "the shell runs it after a failure; DDPRUN_EVENT_CAUSE, _RANK, _STEP tell more",
               {}},
    OptionSpec{"on-checkpoint",
               0,
               Kind::kValue,
               Group::kSeldom,
               "COMMAND",
               "",
               "the shell runs it when a checkpoint is complete, whose path is DDPRUN_EVENT_PATH",
               {}},
    OptionSpec{"metrics-port",
               0,
               Kind::kValue,
               Group::kSeldom,
               "PORT",
               "",
               "Prometheus finds the job's figures at 127.0.0.1:PORT/metrics",
               {},
               Type::kWhole},
    OptionSpec{"agent-store",
               0,
               Kind::kValue,
               Group::kSeldom,
               "on|off",
               "on",
               "a script's store at MASTER_PORT outlives rank 0; off: rank 0 hosts it",
               {},
               Type::kWord},
    OptionSpec{"local-ranks-filter", 0, Kind::kValue, Group::kSeldom, "RANKS", "", "show output of these local ranks only", {}},
    OptionSpec{"no-pty", 0, Kind::kFlag, Group::kSeldom, "", "", "workers get no terminal where ddprun writes to one", {}},
    OptionSpec{"duplicate-stdout-filters",
               0,
               Kind::kValue,
               Group::kSeldom,
               "WORDS",
               "",
               "teed lines with one of these also go to filtered_stdout.log",
               {}},
    OptionSpec{
        "duplicate-stderr-filters", 0, Kind::kValue, Group::kSeldom, "WORDS", "", "the same for filtered_stderr.log", {}},
    OptionSpec{"log-line-prefix-template", 0, Kind::kValue, Group::kSeldom, "TEXT", "", "mark of teed lines",
               "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
    OptionSpec{"run-path", 0, Kind::kFlag, Group::kSeldom, "", "", "PROGRAM is a Python script, whatever it looks like", {}},
    OptionSpec{
        "virtual-local-rank", 0, Kind::kFlag, Group::kSeldom, "", "", "each worker sees only its own GPU, as number 0", {}},
    OptionSpec{"interface", 0, Kind::kValue, Group::kSeldom, "NAME", "", "network interface of agents, Gloo and NCCL", {}},
    OptionSpec{
        "port-range", 0, Kind::kValue, Group::kSeldom, "LOW-HIGH", "", "where agents and MASTER_PORT take free ports", {}},
    OptionSpec{"numa-binding",
               0,
               Kind::kValue,
               Group::kSeldom,
               "node|socket|exclusive|core-complex",
               "",
               "keep workers on CPUs near their GPU",
               {},
               Type::kWord},
    OptionSpec{"print-completion",
               0,
               Kind::kValue,
               Group::kSeldom,
               "bash|zsh|fish|tcsh",
               "",
               "print a completion script for that shell",
               {},
               Type::kWord},
    OptionSpec{"print-man", 0, Kind::kFlag, Group::kSeldom, "", "", "print the manual page: ddprun --print-man | man -l -", {}},

    OptionSpec{"monitor-interval", 0, Kind::kValue, Group::kNoEffect, "SECONDS", "", "nothing polls", {}, Type::kDecimal},
    OptionSpec{"start-method",
               0,
               Kind::kValue,
               Group::kNoEffect,
               "spawn|fork|forkserver",
               "",
               "there is one way to start a process",
               {},
               Type::kWord},
    OptionSpec{"event-log-handler", 0, Kind::kValue, Group::kNoEffect, "NAME", "", "report.json has the events", {}},
    OptionSpec{"logs-specs", 0, Kind::kValue, Group::kNoEffect, "NAME", "", "a Python class", {}},
};

}  // namespace

std::span<const OptionSpec> option_table() {
  return kTable;
}

std::span<const OptionGroupTitle> option_group_titles() {
  static constexpr std::array kTitles{OptionGroupTitle{OptionGroup::kWorkers, "Workers"},
                                      OptionGroupTitle{OptionGroup::kRun, "Run directory"},
                                      OptionGroupTitle{OptionGroup::kProgram, "Program"},
                                      OptionGroupTitle{OptionGroup::kNodes, "Nodes, as with torchrun"},
                                      OptionGroupTitle{OptionGroup::kOutput, "Output"},
                                      OptionGroupTitle{OptionGroup::kSeldom, "Seldom needed"},
                                      OptionGroupTitle{OptionGroup::kNoEffect, "Without effect, accepted for torchrun's sake"}};
  return kTitles;
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

std::vector<std::string_view> words_of(const OptionSpec& option) {
  std::vector<std::string_view> words;
  std::string_view rest = option.value_name;
  while (!rest.empty()) {
    const std::size_t bar = rest.find('|');
    if (const std::string_view word = rest.substr(0, bar); word[0] >= 'a' && word[0] <= 'z') words.push_back(word);
    rest.remove_prefix(bar == std::string_view::npos ? rest.size() : bar + 1);
  }
  return words;
}

std::string variable_name(std::string_view prefix, std::string_view option) {
  std::string name(prefix);
  for (const char c : option) {
    name += c == '-' ? '_' : (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  }
  return name;
}

}  // namespace ddprun
