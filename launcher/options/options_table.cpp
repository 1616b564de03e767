// The rows of the option table, in the order in which --help-all shows the options of a group.
#include "launcher/options/options_table.hpp"

#include <array>

#include "common/base/split.hpp"

namespace ddprun {
namespace {

using Type = OptionSpec::Type;
using Group = OptionGroup;

constexpr std::array kTable{
    OptionSpec{"nproc-per-node", 0, Group::kWorkers, "N|auto|cpu|gpu|xpu",
               "workers on this machine (train.json: one per GPU, or 1 without GPUs; script: 1)"},
    OptionSpec{"max-restarts", 0, Group::kWorkers, "N|auto",
               "maximum number of restarts after failures (train.json: 3, refilled by progress; script: 0)", "", Type::kWhole},
    OptionSpec{"recovery", 0, Group::kWorkers, "live|checkpoint",
               "action if a worker is lost. live: the remaining workers keep their state, if they run ddptrain or a C++ "
               "training loop (default on one machine); checkpoint: all workers restart",
               "", Type::kWord},
    OptionSpec{"standby", 0, Group::kRare, "N", "preloaded processes that replace lost workers", "", Type::kWhole},
    OptionSpec{"preload", 0, Group::kRare, "MODULES", "modules that a script's --standby interpreters import in advance",
               "torch,torch._dynamo"},
    OptionSpec{"restart-policy", 0, Group::kWorkers, "FILE",
               "JSON file with the number of restarts for each cause, and the delays before them; see docs/failures.md"},
    OptionSpec{"shutdown-timeout", 0, Group::kWorkers, "SECONDS", "time from SIGTERM to SIGKILL when workers are stopped", "30",
               Type::kDecimal, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},
    OptionSpec{"hang-timeout", 0, Group::kWorkers, "SECONDS|auto|off",
               "time without progress after which a worker counts as hung (train.json: auto; script: off)"},
    OptionSpec{"signals-to-handle", 0, Group::kRare, "LIST", "signals that trigger an orderly stop of the job",
               "SIGTERM,SIGINT,SIGHUP,SIGQUIT", Type::kText, "TORCHELASTIC_SIGNALS_TO_HANDLE"},

    OptionSpec{"run-dir", 0, Group::kRun, "DIR", "folder for all output (train.json: runs/<name>)"},
    OptionSpec{"resume", 0, Group::kRun, "auto|never|PATH",
               "start from the newest checkpoint (auto), from step 0 (never) or from the checkpoint PATH", "auto"},
    OptionSpec{"fresh", 0, Group::kRun, "", "start over; the old run directory is renamed, not deleted"},
    OptionSpec{"data-changed", 0, Group::kRare, "", "resume even if the data has changed since the run started"},

    OptionSpec{"worker", 0, Group::kRare, "PROGRAM", "worker program for a train.json, instead of ddptrain"},

    OptionSpec{"module", 'm', Group::kProgram, "", "PROGRAM is a Python module"},
    OptionSpec{"no-python", 0, Group::kProgram, "", "PROGRAM is an executable, which is searched for on PATH"},
    OptionSpec{"log-dir", 0, Group::kProgram, "DIR", "folder of a script's log files"},
    OptionSpec{"redirects", 'r', Group::kProgram, "STREAMS",
               "write output only to files: 1 for stdout, 2 for stderr, 3 for both; 0:1,1:2 sets this for local ranks 0 and 1",
               "0"},
    OptionSpec{"tee", 't', Group::kProgram, "STREAMS", "write output to files and, with the rank as a prefix, to the console",
               "0"},

    OptionSpec{"standalone", 0, Group::kNodes, "", "run on one machine, with a free port and a unique run id"},
    OptionSpec{"nnodes", 0, Group::kNodes, "N|MIN:MAX", "number of machines, or its minimum and maximum", "1"},
    OptionSpec{"node-rank", 0, Group::kNodes, "N", "rank of this machine", "", Type::kWhole},
    OptionSpec{"master-addr", 0, Group::kNodes, "HOST", "address of rank 0", "127.0.0.1"},
    OptionSpec{"master-port", 0, Group::kNodes, "PORT",
               "port of rank 0 (script: 29500, or a free one if it is taken; train.json: a free one)", "", Type::kWhole},
    OptionSpec{"local-addr", 0, Group::kNodes, "HOST", "address of this machine"},
    OptionSpec{"rdzv-backend", 0, Group::kNodes, "static|c10d", "rendezvous backend", "static"},
    OptionSpec{"rdzv-endpoint", 0, Group::kNodes, "HOST[:PORT]", "rendezvous address"},
    OptionSpec{"rdzv-id", 0, Group::kNodes, "ID", "run id (script: the word none; train.json: the name in the config)"},
    OptionSpec{"rdzv-conf", 0, Group::kNodes, "K=V,...", "rendezvous timeouts"},
    OptionSpec{"token-file", 0, Group::kNodes, "FILE", "file with the job's secret; ddprun token creates one"},
    OptionSpec{"exclude-failing-nodes", 0, Group::kRare, "",
               "leave nodes out that failed three times in seven days, if --nnodes MIN:MAX allows it"},
    OptionSpec{"force-new-job", 0, Group::kRare, "",
               "do not check whether an earlier start of this job still runs on any machine"},
    OptionSpec{"arbiter", 0, Group::kRare, "etcd://HOST:PORT",
               "etcd server that decides which of two nodes continues if they lose contact (--nnodes 1:MAX)"},
    OptionSpec{"hosts", 0, Group::kNodes, "HOST[:N],...", "start one agent on each of these hosts over ssh, with N workers"},
    OptionSpec{"hosts-timeout", 0, Group::kRare, "SECONDS",
               "with --hosts: time without a connection after which an agent saves and ends", "120", Type::kDecimal},
    OptionSpec{"role", 0, Group::kNodes, "NAME", "role of the workers", "default"},

    OptionSpec{"dry-run", 0, Group::kOutput, "", "print the whole plan, start nothing"},
    OptionSpec{"preflight", 0, Group::kOutput, "", "check this machine first; do not start if there is an error"},
    OptionSpec{"json", 0, Group::kOutput, "", "print one JSON object per line"},
    OptionSpec{"quiet", 'q', Group::kOutput, "", "print errors and the result only"},
    OptionSpec{"verbose", 'v', Group::kOutput, "", "print more; twice: everything"},
    OptionSpec{"version", 'V', Group::kOutput, "", "print the version"},
    OptionSpec{"torchrun-help", 0, Group::kOutput, "",
               "list torchrun's options and environment variables, and how ddprun differs for each"},
    OptionSpec{"help", 'h', Group::kOutput, "", "print the most important options"},
    OptionSpec{"help-all", 0, Group::kOutput, "", "print every option with its explanation"},

    OptionSpec{"chaos", 0, Group::kRare, "FAULTS", "inject faults, such as \"kill rank=1 step=100; hang rank=0 step=200\""},
    OptionSpec{"on-failure", 0, Group::kRare, "COMMAND",
               "shell command to run after a failure; DDPRUN_EVENT_CAUSE, DDPRUN_EVENT_RANK and DDPRUN_EVENT_STEP describe it"},
    OptionSpec{"on-checkpoint", 0, Group::kRare, "COMMAND",
               "shell command to run when a checkpoint is complete; its path is in DDPRUN_EVENT_PATH"},
    OptionSpec{"metrics-port", 0, Group::kRare, "PORT", "serve the job's metrics to Prometheus at 127.0.0.1:PORT/metrics", "",
               Type::kWhole},
    OptionSpec{"agent-store", 0, Group::kRare, "on|off",
               "on: ddprun hosts a script's key-value store at MASTER_PORT, so the store outlives rank 0; off: rank 0 hosts it",
               "on", Type::kWord},
    OptionSpec{"local-ranks-filter", 0, Group::kRare, "RANKS", "show output of these local ranks only"},
    OptionSpec{"no-pty", 0, Group::kRare, "", "do not give workers a terminal, even if ddprun writes to one"},
    OptionSpec{"duplicate-stdout-filters", 0, Group::kRare, "WORDS",
               "with --tee, output lines that contain one of these words are also written to filtered_stdout.log"},
    OptionSpec{"duplicate-stderr-filters", 0, Group::kRare, "WORDS", "the same for stderr and filtered_stderr.log"},
    OptionSpec{"log-line-prefix-template", 0, Group::kRare, "TEXT", "prefix of the lines that --tee prints", "", Type::kText,
               "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
    OptionSpec{"run-path", 0, Group::kRare, "", "PROGRAM is a Python script, whatever its name"},
    OptionSpec{"virtual-local-rank", 0, Group::kRare, "", "each worker sees only its own GPU, as GPU 0"},
    OptionSpec{"interface", 0, Group::kRare, "NAME", "network interface for ddprun, Gloo and NCCL"},
    OptionSpec{"port-range", 0, Group::kRare, "LOW-HIGH", "range of ports for ddprun itself and for MASTER_PORT"},
    OptionSpec{"numa-binding", 0, Group::kRare, "node|socket|exclusive|core-complex", "keep workers on CPUs near their GPU", "",
               Type::kWord},
    OptionSpec{"print-completion", 0, Group::kRare, "bash|zsh|fish|tcsh", "print a completion script for that shell", "",
               Type::kWord},
    OptionSpec{"print-man", 0, Group::kRare, "", "print the manual page: ddprun --print-man | man -l -"},

    OptionSpec{"monitor-interval", 0, Group::kNoEffect, "SECONDS", "ddprun does not poll", "", Type::kDecimal},
    OptionSpec{"start-method", 0, Group::kNoEffect, "spawn|fork|forkserver", "ddprun has only one way to start a process", "",
               Type::kWord},
    OptionSpec{"event-log-handler", 0, Group::kNoEffect, "NAME", "report.json has the events"},
    OptionSpec{"logs-specs", 0, Group::kNoEffect, "NAME", "it names a Python class"},
};

}  // namespace

std::span<const OptionSpec> option_table() {
  return kTable;
}

std::span<const OptionGroupTitle> option_group_titles() {
  static constexpr std::array kTitles{
      OptionGroupTitle{OptionGroup::kWorkers, "Workers"},
      OptionGroupTitle{OptionGroup::kRun, "Run directory"},
      OptionGroupTitle{OptionGroup::kProgram, "Program"},
      OptionGroupTitle{OptionGroup::kNodes, "Nodes, as in torchrun"},
      OptionGroupTitle{OptionGroup::kOutput, "Output"},
      OptionGroupTitle{OptionGroup::kRare, "Rarely needed"},
      OptionGroupTitle{OptionGroup::kNoEffect, "Without effect, accepted for compatibility with torchrun"}};
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
  for (const std::string_view word : split(option.value_name, '|')) {
    if (!word.empty() && word[0] >= 'a' && word[0] <= 'z') words.push_back(word);
  }
  return words;
}

void make_variable_name(std::string& name, std::string_view prefix, std::string_view option) {
  name = prefix;
  for (const char c : option) {
    name += c == '-' ? '_' : (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  }
}

}  // namespace ddprun
