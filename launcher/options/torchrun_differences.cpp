#include "launcher/options/torchrun_differences.hpp"

#include <algorithm>
#include <array>

#include "launcher/options/options_table.hpp"

namespace ddprun {
namespace {

using enum TorchrunSupport;

constexpr std::array kOptions{
    TorchrunRow{"nnodes", kSame, "MIN:MAX or N; every machine of a job needs the job's token (`ddprun token`)"},
    TorchrunRow{
        "nproc-per-node", kBetter,
        "`cpu` counts the CPUs that this process may use (affinity, cgroup quota); GPUs are counted without opening CUDA"},
    TorchrunRow{"rdzv-backend", kBetter, "`static` and `c10d`; `etcd` is rejected, since ddprun needs no etcd server"},
    TorchrunRow{"rdzv-endpoint", kBetter,
                "with the backend `static`, it takes precedence over `--master-addr`; the port may be omitted (29500)"},
    TorchrunRow{"rdzv-id", kSame, "`none` unless given; `--standalone` generates one"},
    TorchrunRow{"rdzv-conf", kBetter,
                "values are checked, and unknown keys are reported; `last_call_timeout` is 2 s instead of 30 s"},
    TorchrunRow{
        "standalone", kBetter,
        "opens no ports except those that the workers use; ignores `--rdzv-endpoint`, `--rdzv-backend` and `--rdzv-id`"},
    TorchrunRow{"max-restarts", kBetter, "one budget for the whole job; also `auto`"},
    TorchrunRow{"monitor-interval", kNoEffect, "ddprun does not poll: the exit of a worker is an event"},
    TorchrunRow{"start-method", kNoEffect, "ddprun has only one way to start a process"},
    TorchrunRow{"event-log-handler", kNoEffect, "names a Python object; report.json has the events"},
    TorchrunRow{"role", kSame, ""},
    TorchrunRow{"module", kSame, "Python reports a missing module, in the worker"},
    TorchrunRow{"no-python", kBetter, "a missing program is reported immediately, in one line"},
    TorchrunRow{"run-path", kSame, "in a separate interpreter: `python -u SCRIPT`"},
    TorchrunRow{"log-dir", kSame, "`--log-dir /dev/null` writes no files"},
    TorchrunRow{"redirects", kBetter, "local ranks above 9 are supported"},
    TorchrunRow{"tee", kBetter, "lines of different workers are never mixed; local ranks above 9 are supported"},
    TorchrunRow{"local-ranks-filter", kSame, ""},
    TorchrunRow{"duplicate-stdout-filters", kSame, "`,,` is a comma"},
    TorchrunRow{"duplicate-stderr-filters", kSame, "`,,` is a comma"},
    TorchrunRow{"log-line-prefix-template", kSame,
                "since torchrun 2.14; takes precedence over `TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE`"},
    TorchrunRow{"node-rank", kSame, "used only with the backend `static`"},
    TorchrunRow{"master-addr", kSame, "each node passes its own value to its workers; used only with the backend `static`"},
    TorchrunRow{"master-port", kBetter,
                "0: a free port is chosen. A given port that is already in use is reported immediately, in one line. If the "
                "default port 29500 is in use, a free port replaces it. Used only with the backend `static`"},
    TorchrunRow{"local-addr", kSame,
                "sets `MASTER_ADDR` with the backend `c10d` and with `--standalone`; 127.0.0.1 unless given"},
    TorchrunRow{"logs-specs", kNoEffect, "names a Python class"},
    TorchrunRow{"numa-binding", kBetter, "works without GPUs as well; `--dry-run` shows the CPUs"},
    TorchrunRow{"signals-to-handle", kSame,
                "SIGUSR1 and SIGUSR2 are forwarded to the workers, and stop the job only if they are in the list"},
    TorchrunRow{"shutdown-timeout", kBetter,
                "since torchrun 2.12; fractions and 0 are allowed; a second Ctrl-C kills immediately"},
    TorchrunRow{"virtual-local-rank", kSame, "`HIP_VISIBLE_DEVICES` takes precedence, as in torchrun since 2.15"},
    TorchrunRow{"print-completion", kBetter, "since torchrun 2.14, which needs an extra package for it"},
    TorchrunRow{"help", kSame, ""},
};

constexpr std::array kVariables{
    TorchrunRow{
        "PYTHON_EXEC", kBetter,
        "the Python interpreter for scripts. If it is unset, ddprun searches the environment that contains ddprun, then the "
        "active environment, then PATH (`python3`). torchrun uses its own interpreter"},
    TorchrunRow{"OMP_NUM_THREADS", kBetter,
                "if it is unset, each of several workers gets 1, or in a Slurm job its share of `SLURM_CPUS_PER_TASK`; when "
                "invoked as torchrun, always 1"},
    TorchrunRow{"TORCH_NCCL_ASYNC_ERROR_HANDLING", kSame, "if it is unset, workers get 1; `ddptrain` always gets 0"},
    TorchrunRow{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", kSame, "`--log-line-prefix-template` takes precedence"},
    TorchrunRow{"TORCHELASTIC_SIGNALS_TO_HANDLE", kBetter,
                "`--signals-to-handle` takes precedence (torchrun overwrites the variable)"},
    TorchrunRow{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", kSame, "`--shutdown-timeout` takes precedence"},
    TorchrunRow{"TORCHELASTIC_ERROR_FILE", kSame,
                "path to which the launcher copies the error file of the worker that failed first"},
    TorchrunRow{"TORCH_ELASTIC_WORKER_IDENTICAL", kNoEffect, "ranks are the same whether it is set or not"},
    TorchrunRow{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", kBetter,
                "1: rank 0 hosts the store, also with the backend `static`; `--agent-store` takes precedence"},
    TorchrunRow{"TORCHELASTIC_HEALTH_CHECK_PORT", kNoEffect,
                "has no effect in torchrun either: PyTorch's health check server is an empty stub"},
    TorchrunRow{"TORCHELASTIC_ENABLE_FILE_TIMER", kBetter,
                "an overdue worker is killed within milliseconds and reported; torchrun's agent also kills itself"},
    TorchrunRow{"TORCHELASTIC_TIMER_FILE", kSame, "an existing file with that name is left unchanged if it is not a pipe"},
    TorchrunRow{"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", kSame, "since torchrun 2.13; exit code 89"},
    TorchrunRow{
        "LOGLEVEL", kNoEffect,
        "has no effect, except that LOGLEVEL=ERROR suppresses the banner if ddprun is invoked as torchrun; `-v` and `-q` "
        "set the verbosity"},
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
  std::string text = table_row(std::string(title), "ddprun", "reason or difference", width);
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
