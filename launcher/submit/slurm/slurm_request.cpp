#include "launcher/submit/slurm/slurm_request.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "launcher/options/parse_number.hpp"
#include "launcher/submit/slurm/slurm_time.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Type = OptionSpec::Type;

constexpr OptionGroup kGroup = OptionGroup::kRare;  // these options are not in --help-all
constexpr std::array kOptions{
    OptionSpec{"slurm", 0, kGroup, "", "submit the job to Slurm"},
    OptionSpec{"nodes", 0, kGroup, "N|MIN:MAX", "number of nodes, or its minimum and maximum", "1"},
    OptionSpec{"spares", 0, kGroup, "N", "additional nodes, which wait until another node is lost", "0", Type::kWhole},
    OptionSpec{"time", 0, kGroup, "T", "time limit of each start, in sbatch's format"},
    OptionSpec{"partition", 0, kGroup, "P", "partition of the cluster"},
    OptionSpec{"gpus", 0, kGroup, "G", "GPUs of each node, as N or TYPE:N"},
    OptionSpec{"cpus-per-task", 0, kGroup, "N", "CPUs of each node", "", Type::kWhole},
    OptionSpec{"signal-before", 0, kGroup, "SECONDS", "time from Slurm's signal to the time limit", "120", Type::kWhole},
    OptionSpec{"account", 0, kGroup, "A", "account"},
    OptionSpec{"qos", 0, kGroup, "Q", "quality of service"},
    OptionSpec{"job-name", 0, kGroup, "NAME", "name of the job in Slurm"},
    OptionSpec{"array", 0, kGroup, "LIST", "job array, such as 0-3"},
    OptionSpec{"max-failures", 0, kGroup, "N", "requeues after failures", "3", Type::kWhole},
    OptionSpec{"max-timeouts", 0, kGroup, "N", "requeues after time limits without a newer checkpoint", "3", Type::kWhole},
    OptionSpec{"sbatch", 0, kGroup, "OPTION", "an additional sbatch option, such as mem=64G"},
    OptionSpec{"after", 0, kGroup, "CODE", "used by the batch file: decide whether to requeue the job", "", Type::kWhole},
};

constexpr int kMaxNodes = 100'000;
constexpr int kMaxBudget = 1'000'000;
constexpr int kMaxSignalBefore = 65'535;  // the maximum that sbatch accepts
constexpr int kMinSignalBefore = 10;

// Options of the launcher that `submit` reads itself. Three of them are always written into the batch file.
constexpr std::array<std::string_view, 5> kWritten{"run-dir", "token-file", "shutdown-timeout", "dry-run", "help"};

// Options of the launcher that contradict a Slurm job, each with a hint for the user.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kRefused{{
    {"nnodes", "use --nodes"},
    {"node-rank", "each agent reads its rank from Slurm; the number of nodes is --nodes"},
    {"master-addr", "the agents read the address from Slurm"},
    {"rdzv-endpoint", "the agents read the address from Slurm"},
    {"hosts", "Slurm selects the hosts; use --nodes"},
    {"standalone", "use --nodes 1"},
    {"fresh", "each requeue would start over: use a new --run-dir, or rename the run directory"},
    {"version", "use ddprun --version"},
    {"torchrun-help", "use ddprun --torchrun-help"},
    {"help-all", "use ddprun --help-all"},
    {"print-completion", "use ddprun --print-completion"},
    {"print-man", "use ddprun --print-man"},
    {"json", "submit prints text only; set DDPRUN_JSON=1 in the job's environment"},
    {"rdzv-id", "the agents derive the run id from the Slurm job id"},
}};

// Options of sbatch that --sbatch refuses. The batch file or an option of `submit` sets them, or they change sbatch's output.
constexpr std::array<std::string_view, 21> kOfBatchFile{
    "nodes",     "time",   "partition", "gpus-per-node", "cpus-per-task", "account",    "qos",
    "job-name",  "array",  "chdir",     "signal",        "requeue",       "no-requeue", "no-kill",
    "open-mode", "output", "error",     "wrap",          "parsable",      "test-only",  "wait"};

std::string_view name_in(std::string_view option) {
  option.remove_prefix(2);
  return option.substr(0, option.find('='));
}

std::string value_in(const std::string& option) {
  const std::size_t equals = option.find('=');
  return equals == std::string::npos ? "" : option.substr(equals + 1);
}

bool is_own(std::string_view name) {
  return std::ranges::find(kOptions, name, &OptionSpec::name) != kOptions.end() ||
         std::ranges::find(kWritten, name) != kWritten.end();
}

[[noreturn]] void refuse_value(std::string_view name, const std::string& value, const std::string& expected) {
  throw UsageError("--" + std::string(name) + ": expected " + expected + ", but got '" + printable(value) + "'");
}

int number_of(const SubmitWords& words, std::string_view name, int otherwise, int min, int max) {
  const auto value = words.value(name);
  if (!value) return otherwise;
  const auto number = parse_whole(*value);
  if (!number || *number < min || *number > max)
    refuse_value(name, *value, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
  return static_cast<int>(*number);
}

// Returns the value of an option. Refuses an empty value, which probably comes from an unset shell variable.
std::string text_of(const SubmitWords& words, std::string_view name) {
  const auto value = words.value(name);
  if (value && value->empty()) refuse_value(name, *value, "a value");
  return value.value_or("");
}

void read_nodes(const std::string& value, SlurmRequest& request) {
  const std::size_t between = value.find_first_of(":-");
  const auto low = parse_whole(value.substr(0, between));
  const auto high = between == std::string::npos ? low : parse_whole(value.substr(between + 1));
  if (!low || !high || *low < 1 || *high < *low || *high > kMaxNodes)
    refuse_value("nodes", value, "N or MIN:MAX with 1 <= MIN <= MAX");
  request.min_nodes = static_cast<int>(*low);
  request.max_nodes = static_cast<int>(*high);
}

// Checks an option of sbatch, and returns it without its dashes. The forms are "--mem=64G", "mem=64G" and "mem 64G".
std::string checked_sbatch_option(std::string text) {
  if (text.starts_with("--")) text.erase(0, 2);
  const std::string name = text.substr(0, text.find_first_of("= "));
  const bool is_name =
      !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == std::string::npos && name[0] != '-';
  const bool is_line = std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!is_name || !is_line) refuse_value("sbatch", text, "the long name of one sbatch option, such as mem=64G or exclusive");
  if (name.starts_with("ntasks") || name == "gpus-per-task" || name == "tasks-per-node") {
    throw UsageError(
        "--sbatch " + name +
        " would start several agents on a node: the batch file contains #SBATCH --ntasks-per-node=1, and each agent "
        "starts the workers of its node; set their number with --nproc-per-node, and the GPUs of a node with --gpus");
  }
  if (std::ranges::find(kOfBatchFile, name) != kOfBatchFile.end()) {
    throw UsageError(
        "--sbatch " + name +
        " cannot be used, since ddprun submit sets or excludes it: use the option of ddprun submit, or change the batch file");
  }
  return text;
}

fs::path absolute_path(const fs::path& folder, const fs::path& path) {
  const fs::path whole = (path.is_absolute() ? path : folder / path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

std::span<const OptionSpec> slurm_options() {
  return kOptions;
}

bool SubmitWords::has(std::string_view name) const {
  return std::ranges::find(own, name, &Option::name) != own.end();
}

std::optional<std::string> SubmitWords::value(std::string_view name) const {
  const auto found = std::ranges::find(own.rbegin(), own.rend(), name, &Option::name);
  return found == own.rend() ? std::nullopt : std::optional(found->value);
}

SubmitWords split_submit_words(std::span<const std::string> args) {
  NormalisedArguments normalised = normalise(args, kOptions);
  SubmitWords words;
  words.program = std::move(normalised.positional);
  for (std::string& option : normalised.options) {
    const std::string_view name = name_in(option);
    const auto refused = std::ranges::find(kRefused, name, &std::pair<std::string_view, std::string_view>::first);
    if (refused != kRefused.end())
      throw UsageError("--" + std::string(name) + " cannot be used with ddprun submit: " + std::string(refused->second));
    if (name == "resume" && value_in(option) != "auto") {
      throw UsageError(
          "--resume " + value_in(option) +
          " cannot be used with ddprun submit, since each requeue must resume from the newest checkpoint: remove it");
    }
    if (is_own(name)) {
      words.own.push_back({std::string(name), value_in(option)});
    } else {
      words.launcher.push_back(std::move(option));
    }
  }
  return words;
}

SlurmRequest slurm_request(const SubmitWords& words, const SubmitPlace& place) {
  SlurmRequest request;
  request.ddprun = place.ddprun;
  request.folder = place.folder;
  if (const auto nodes = words.value("nodes")) read_nodes(*nodes, request);
  request.spares = number_of(words, "spares", 0, 0, kMaxNodes);
  request.job_name = words.has("job-name") ? text_of(words, "job-name") : place.default_name;
  request.time = text_of(words, "time");
  if (!request.time.empty() && !parse_slurm_time(request.time))
    refuse_value("time", request.time, "a time in sbatch's format, such as 90 (minutes), 12:00:00 or 2-12:00:00");
  request.partition = text_of(words, "partition");
  request.account = text_of(words, "account");
  request.qos = text_of(words, "qos");
  request.gpus = text_of(words, "gpus");
  request.array = text_of(words, "array");
  request.cpus_per_task = number_of(words, "cpus-per-task", 0, 1, kMaxBudget);
  request.signal_before = std::chrono::seconds(number_of(words, "signal-before", 120, kMinSignalBefore, kMaxSignalBefore));
  request.max_failures = number_of(words, "max-failures", 3, 0, kMaxBudget);
  request.max_timeouts = number_of(words, "max-timeouts", 3, 0, kMaxBudget);
  for (const SubmitWords::Option& option : words.own)
    if (option.name == "sbatch") request.sbatch.push_back(checked_sbatch_option(option.value));
  request.shutdown_timeout =
      words.value("shutdown-timeout").value_or(std::to_string(default_shutdown(request.signal_before).count()));
  const auto shutdown = parse_decimal(request.shutdown_timeout);
  if (!shutdown || *shutdown < 0) refuse_value("shutdown-timeout", request.shutdown_timeout, "a number of seconds");
  const std::string run_dir = text_of(words, "run-dir");
  request.run_dir = absolute_path(place.folder, run_dir.empty() ? fs::path("runs") / place.default_name : fs::path(run_dir));
  if (const std::string token = text_of(words, "token-file"); !token.empty()) {
    request.token_file = absolute_path(place.folder, token);
  } else if (request.max_nodes + request.spares > 1) {
    request.token_file = request.run_dir / "token";
  }
  request.options = words.launcher;
  request.program = words.program;
  return request;
}

AfterRequest after_request(const SubmitWords& words, const fs::path& folder) {
  AfterRequest request;
  request.code = number_of(words, "after", 0, 0, 255);
  const std::string run_dir = text_of(words, "run-dir");
  if (run_dir.empty()) throw UsageError("ddprun submit --after needs --run-dir, the run directory of the job");
  request.run_dir = absolute_path(folder, run_dir);
  request.signal_before = std::chrono::seconds(number_of(words, "signal-before", 120, kMinSignalBefore, kMaxSignalBefore));
  request.max_failures = number_of(words, "max-failures", 3, 0, kMaxBudget);
  request.max_timeouts = number_of(words, "max-timeouts", 3, 0, kMaxBudget);
  return request;
}

}  // namespace ddprun
