// See options_torchrun.hpp.
#include "launcher/options/options_torchrun.hpp"

#include <algorithm>
#include <array>

#include "launcher/options/options_table.hpp"

namespace ddprun {
namespace {

using enum TorchrunSupport;

constexpr std::array kOptions{
    TorchrunRow{"nnodes", kSame, "MIN:MAX or N; all machines of a job need its token"},
    TorchrunRow{"nproc-per-node", kBetter,
                "`cpu` counts the CPUs this process may use (affinity, cgroup quota); no CUDA is opened to count GPUs"},
    TorchrunRow{"rdzv-backend", kBetter,
                "`static` and `c10d`; `etcd` is refused with a way out, since agents meet without a server"},
    TorchrunRow{"rdzv-endpoint", kBetter, "`static` beats `--master-addr`, and the port may be left out (29500)"},
    TorchrunRow{"rdzv-id", kSame, "`none` unless given; `--standalone` makes its own"},
    TorchrunRow{"rdzv-conf", kBetter, "values are checked, unknown keys are said, the last call takes 2 s and not 30"},
    TorchrunRow{"standalone", kBetter, "no port is opened beside the workers' own; ignores endpoint, backend and id"},
    TorchrunRow{"max-restarts", kBetter, "one budget for the whole job; also `auto`"},
    TorchrunRow{"monitor-interval", kNoEffect, "nothing polls: the end of a worker is an event"},
    TorchrunRow{"start-method", kNoEffect, "there is one way to start a process"},
    TorchrunRow{"event-log-handler", kNoEffect, "names a Python object; report.json has the events"},
    TorchrunRow{"role", kSame, ""},
    TorchrunRow{"module", kSame, "a module that is not there is found out by Python, in the worker"},
    TorchrunRow{"no-python", kBetter, "a missing program is one line at once"},
    TorchrunRow{"run-path", kSame, "in an interpreter of its own: `python -u SCRIPT`"},
    TorchrunRow{"log-dir", kSame, "/dev/null: no files"},
    TorchrunRow{"redirects", kBetter, "local ranks above 9 can be named"},
    TorchrunRow{"tee", kBetter, "lines of several workers stay whole; local ranks above 9 can be named"},
    TorchrunRow{"local-ranks-filter", kSame, ""},
    TorchrunRow{"duplicate-stdout-filters", kSame, "`,,` is a comma"},
    TorchrunRow{"duplicate-stderr-filters", kSame, "`,,` is a comma"},
    TorchrunRow{"log-line-prefix-template", kSame, "since torchrun 2.14; wins over the variable"},
    TorchrunRow{"node-rank", kSame, "counts under `static` only"},
    TorchrunRow{"master-addr", kSame, "each node passes on its own value; counts under `static` only"},
    TorchrunRow{"master-port", kBetter,
                "0 takes a free port; one that is named and taken is one line at once. 29500 by default gives way to a free "
                "one; counts under `static` only"},
    TorchrunRow{"local-addr", kSame, "`MASTER_ADDR` under `c10d` and `--standalone`, 127.0.0.1 unless given"},
    TorchrunRow{"logs-specs", kNoEffect, "names a Python class"},
    TorchrunRow{"numa-binding", kBetter, "works without GPUs as well; `--dry-run` shows the CPUs"},
    TorchrunRow{"signals-to-handle", kSame, "SIGUSR1 and SIGUSR2 that are not in the list are forwarded and stop nothing"},
    TorchrunRow{"shutdown-timeout", kBetter, "since torchrun 2.12; fractions and 0 are fine; a second Ctrl-C kills at once"},
    TorchrunRow{"virtual-local-rank", kSame, "`HIP_VISIBLE_DEVICES` comes first, as since torchrun 2.15"},
    TorchrunRow{"print-completion", kBetter, "since torchrun 2.14, where it needs a package"},
    TorchrunRow{"help", kSame, ""},
};

constexpr std::array kVariables{
    TorchrunRow{"PYTHON_EXEC", kBetter,
                "the interpreter; else that of the environment the program lies in, of an active one, or `python3` on PATH "
                "(torchrun: its own)"},
    TorchrunRow{"OMP_NUM_THREADS", kBetter,
                "1 for workers when it is unset and there are several of them; in a Slurm job they share "
                "`SLURM_CPUS_PER_TASK`, unless the name is torchrun"},
    TorchrunRow{"TORCH_NCCL_ASYNC_ERROR_HANDLING", kSame, "1 for workers when it is unset; for `ddptrain` always 0"},
    TorchrunRow{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", kSame, "after `--log-line-prefix-template`"},
    TorchrunRow{"TORCHELASTIC_SIGNALS_TO_HANDLE", kBetter, "after `--signals-to-handle` (torchrun overwrites it)"},
    TorchrunRow{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", kSame, "after `--shutdown-timeout`"},
    TorchrunRow{"TORCHELASTIC_ERROR_FILE", kSame, "the launcher's own: a copy of the first cause's error file"},
    TorchrunRow{"TORCH_ELASTIC_WORKER_IDENTICAL", kNoEffect, "ranks are the same with and without"},
    TorchrunRow{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", kBetter,
                "1: rank 0 hosts the store, under `static` as well; `--agent-store` wins over it"},
    TorchrunRow{"TORCHELASTIC_HEALTH_CHECK_PORT", kNoEffect, "PyTorch's own server for it is empty"},
    TorchrunRow{"TORCHELASTIC_ENABLE_FILE_TIMER", kBetter,
                "an overdue worker is killed within milliseconds and named; torchrun's agent kills itself as well"},
    TorchrunRow{"TORCHELASTIC_TIMER_FILE", kSame, "a file of that name that is no pipe is left alone"},
    TorchrunRow{"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", kSame, "since torchrun 2.13; exit code 89"},
    TorchrunRow{"LOGLEVEL", kNoEffect, "`-v` and `-q` say how much is told; ERROR leaves out the banner of the torchrun name"},
};

const char* word_of(TorchrunSupport support) {
  switch (support) {
    case kSame:
      return "same";
    case kBetter:
      return "better";
    case kNoEffect:
      return "no effect";
  }
  return "";
}

std::string table_row(std::string name, std::string support, std::string_view why, std::size_t name_width) {
  name.resize(std::max(name.size(), name_width), ' ');
  support.resize(std::max<std::size_t>(support.size(), 9), ' ');
  return "| " + name + " | " + support + " | " + std::string(why) + (why.empty() ? "|\n" : " |\n");
}

std::string table(std::string_view title, std::span<const TorchrunRow> rows, std::string_view dashes) {
  const auto shown = [&](const TorchrunRow& entry) {
    std::string name = "`" + std::string(dashes) + std::string(entry.name) + "`";
    const OptionSpec* option = dashes.empty() ? nullptr : find_option(entry.name);
    if (option != nullptr && option->letter != 0) name = std::string("`-") + option->letter + "`, " + name;
    return name;
  };
  std::size_t width = 0;
  for (const TorchrunRow& entry : rows) width = std::max(width, shown(entry).size());
  std::string text = table_row(std::string(title), "ddprun", "why, or what differs", width);
  text += "|" + std::string(width + 2, '-') + "|-----------|---|\n";
  for (const TorchrunRow& entry : rows) text += table_row(shown(entry), word_of(entry.support), entry.why, width);
  return text;
}

}  // namespace

std::span<const TorchrunRow> torchrun_options() {
  return kOptions;
}

std::span<const TorchrunRow> torchrun_variables() {
  return kVariables;
}

bool is_torchrun_option(std::string_view name) {
  return std::any_of(kOptions.begin(), kOptions.end(), [&](const TorchrunRow& entry) { return entry.name == name; });
}

std::string torchrun_help_text() {
  return table("option", kOptions, "--") + "\n" + table("variable", kVariables, "");
}

}  // namespace ddprun
