// Implementation of kubernetes_request.hpp.
#include "launcher/submit/kubernetes/kubernetes_request.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/base/rounding.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/parse_number.hpp"
#include "launcher/options/shell_quoted.hpp"
#include "launcher/submit/kubernetes/yaml_text.hpp"

namespace ddprun {
namespace {

using Kind = KubernetesJob::Kind;
using Capacity = KubernetesJob::Capacity;

// The name of a pod has at most 63 characters: NAME, "-node-0", an index of up to 5 digits, and a suffix of 6 characters.
constexpr std::size_t kMaxName = 44;
constexpr std::size_t kMaxObjectName = 253;
constexpr int kMaxNodes = 10'000;
constexpr std::size_t kMaxConfigBytes = 512 << 10;  // etcd refuses objects of more than 1.5 MiB
constexpr std::size_t kMaxWords = 100;              // the command of a TrainJob may have 128 words, and ddprun adds 13 of them

[[noreturn]] void refuse_option(std::string_view option, const std::string& value, const std::string& expected) {
  throw UsageError(std::string(option) + ": expected " + expected + ", found '" + printable(value) + "'");
}

bool is_lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

// Returns true for a label of RFC 1035: lower-case letters, digits and dashes. It starts with a letter and does not end with a
// dash.
bool is_label(std::string_view name) {
  const auto allowed = [](char c) { return is_lower_or_digit(c) || c == '-'; };
  return !name.empty() && name.size() <= kMaxName && name[0] >= 'a' && name.back() != '-' && std::ranges::all_of(name, allowed);
}

// Returns true for a valid name of an object, such as a Secret.
bool is_object_name(std::string_view name) {
  const auto allowed = [](char c) { return is_lower_or_digit(c) || c == '-' || c == '.'; };
  return !name.empty() && name.size() <= kMaxObjectName && is_lower_or_digit(name[0]) && is_lower_or_digit(name.back()) &&
         std::ranges::all_of(name, allowed);
}

// Returns the number of bytes or units in a Kubernetes quantity such as 64Gi, 1.5 or 500m. Returns nullopt for any other text.
std::optional<double> quantity(std::string_view text) {
  struct Unit {
    std::string_view name;
    double factor;
  };
  constexpr std::array<Unit, 10> kUnits{
      Unit{"Ki", 1024.0}, {"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0},       {"m", 1e-3}, {"k", 1e3},
      {"M", 1e6},         {"G", 1e9},        {"T", 1e12},          Unit{"Pi", 1125899906842624.0}};
  double factor = 1;
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    factor = unit.factor;
    text.remove_suffix(unit.name.size());
    break;
  }
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string_view::npos) return std::nullopt;
  const auto number = parse_decimal(text);
  return number && *number > 0 ? std::optional(*number * factor) : std::nullopt;
}

// Returns a name for the job, from the file name of its program: "Train_2.py" becomes "train-2".
std::string name_from(std::string_view program) {
  program = program.substr(program.rfind('/') + 1);  // without '/', npos + 1 is 0
  program = program.substr(0, program.find('.'));
  std::string name;
  for (char c : program.substr(0, kMaxName)) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    name += is_lower_or_digit(c) ? c : '-';
  }
  while (name.ends_with('-')) name.pop_back();
  return is_label(name) ? name : "train";
}

// Returns a quarter of the memory, for /dev/shm, such as "64Gi", or "2560Mi" if the quarter is not a multiple of 1 GiB.
std::string quarter_of(double memory_bytes) {
  const std::int64_t mib = std::max<std::int64_t>(round_to_nearest(memory_bytes / 4 / (1 << 20)), 1);
  return mib % 1024 == 0 ? std::to_string(mib / 1024) + "Gi" : std::to_string(mib) + "Mi";
}

class RequestReader {
 public:
  explicit RequestReader(const KubernetesRequest& request) : request_(request) {}

  std::string text(std::string_view option, std::string fallback) const {
    return request_.option(option).value_or(std::move(fallback));
  }

  int number(std::string_view option, int fallback, int min, int max) const {
    const auto value = request_.option(option);
    if (!value) return fallback;
    const auto number = parse_whole(*value);
    if (!number || *number < min || *number > max)
      refuse_option(option, *value, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
    return static_cast<int>(*number);
  }

  std::string size(std::string_view option, std::string fallback) const {
    std::string value = text(option, std::move(fallback));
    if (!quantity(value)) refuse_option(option, value, "a Kubernetes quantity, such as 64Gi");
    return value;
  }

  std::string object(std::string_view option, std::string fallback) const {
    std::string value = text(option, std::move(fallback));
    if (!value.empty() && !is_object_name(value))
      refuse_option(option, value, "the name of a Kubernetes object: lower-case letters, digits, dashes and dots");
    return value;
  }

  bool has(std::string_view option) const { return request_.option(option).has_value(); }

 private:
  const KubernetesRequest& request_;
};

Kind kind_of(const RequestReader& read) {
  const std::string kind = read.text("--kind", "job");
  if (kind == "job") return Kind::kJob;
  if (kind == "jobset") return Kind::kJobSet;
  if (kind == "trainjob") return Kind::kTrainJob;
  if (kind == "runtime") return Kind::kRuntime;
  refuse_option("--kind", kind, "job, jobset, trainjob or runtime");
}

void read_nodes(const RequestReader& read, KubernetesJob& job) {
  const std::string nodes = read.text("--nodes", "1");
  const std::size_t colon = nodes.find(':');
  const auto min = parse_whole(nodes.substr(0, colon));
  const auto max = colon == std::string::npos ? min : parse_whole(nodes.substr(colon + 1));
  if (!min || !max || *min < 1 || *max < *min || *max > kMaxNodes) {
    refuse_option("--nodes", nodes, "N or MIN:MAX with at most " + std::to_string(kMaxNodes) + " nodes, such as 4 or 2:4");
  }
  job.min_nodes = static_cast<int>(*min);
  job.max_nodes = static_cast<int>(*max);
}

void read_resources(const RequestReader& read, KubernetesJob& job) {
  job.gpus = read.number("--gpus", 0, 0, 64);
  const int units = std::max(job.gpus, 1);
  job.cpus = read.size("--cpus", std::to_string(4 * units));
  job.memory = read.size("--memory", std::to_string((job.gpus > 0 ? 32 : 8) * units) + "Gi");
  const double memory = quantity(job.memory).value_or(0);
  job.shared_memory = read.size("--shm", quarter_of(memory));
  if (quantity(job.shared_memory).value_or(0) >= memory) {
    throw UsageError("--shm " + job.shared_memory + " is not less than --memory " + job.memory +
                     ": shared memory counts towards the memory of the pod, so increase --memory or reduce --shm");
  }
  job.storage = read.size("--storage", "100Gi");
}

void read_run_dir(const RequestReader& read, KubernetesJob& job) {
  job.run_dir = read.text("--run-dir", "/runs/" + job.name);
  while (job.run_dir.size() > 1 && job.run_dir.ends_with('/')) job.run_dir.pop_back();
  const std::string mount = job.run_dir.substr(0, job.run_dir.rfind('/') + 1);  // with the slash at the end
  const auto covers = [&](std::string_view folder) { return std::string(folder).append("/").starts_with(mount); };
  const bool has_dots = (job.run_dir + "/").find("/../") != std::string::npos;
  constexpr std::array<std::string_view, 9> kOfPod{"/secrets", kConfigFolder, "/dev", "/proc", "/sys",
                                                   "/etc",     "/tmp",        "/usr", "/bin"};
  const bool hides = std::ranges::any_of(
      kOfPod, [&](std::string_view folder) { return covers(folder) || mount.starts_with(std::string(folder).append("/")); });
  if (!job.run_dir.starts_with('/') || mount.size() < 2 || hides || has_dots) {
    refuse_option("--run-dir", job.run_dir,
                  "an absolute path in the pod, such as /runs/" + job.name +
                      "; the volume is mounted at its parent folder, which must not be a system folder");
  }
}

// An option of ddprun that the manifests set, and the option of `ddprun submit` with which a user changes its value.
struct SetOption {
  std::string_view launcher, submit;
};
constexpr std::array<SetOption, 8> kSetOptions{SetOption{"nnodes", "--nodes"},
                                               {"run-dir", "--run-dir before the program"},
                                               {"token-file", "--secret"},
                                               {"shutdown-timeout", "--grace"},
                                               {"node-rank", ""},
                                               {"master-addr", ""},
                                               {"rdzv-endpoint", ""},
                                               {"standalone", ""}};

void refuse_set_options(const Settings& given) {
  for (const auto& [launcher, submit] : kSetOptions) {
    if (!given.given(launcher)) continue;
    throw UsageError("--" + std::string(launcher) + " cannot be given after the options of ddprun submit: " +
                     (submit.empty() ? "the pods read it from Kubernetes, so remove it"
                                     : "the manifests set it, so use " + std::string(submit) + " of ddprun submit"));
  }
}

std::string file_name_of(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  const auto allowed = [](char c) {
    return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
  };
  return std::ranges::all_of(name, allowed) && name.size() <= kMaxObjectName ? name : "train.json";
}

// Puts a train.json of this machine into the manifests. An absolute path that does not exist here is a path in the image.
void read_config(const KubernetesRequest& request, KubernetesJob& job) {
  std::string& program = job.program.front();
  if (!program.ends_with(".json")) return;
  const auto text = request.read_file(program);
  if (!text && program.starts_with('/')) return;
  if (!text) {
    throw UsageError(printable(program) +
                     " does not exist here, so it cannot become part of the manifests; for a file in the image, give its "
                     "absolute path");
  }
  if (text->size() > kMaxConfigBytes || !is_utf8(*text) || text->empty()) {
    throw UsageError(printable(program) +
                     " cannot become part of the manifests: expected UTF-8 text of 1 byte to 512 KiB; put the file into the "
                     "image, and give its absolute path there");
  }
  job.config_text = *text;
  program = std::string(kConfigFolder) + "/" + file_name_of(program);
}

void read_command(const KubernetesRequest& request, KubernetesJob& job) {
  const std::span<const std::string> words = request.words;
  for (const std::string& word : words) {
    if (!is_utf8(word)) {
      throw UsageError("an argument is not valid UTF-8: '" + printable(word) +
                       "'; Kubernetes can pass only UTF-8 text, so rename the file or encode the argument");
    }
  }
  if (words.size() > kMaxWords) {
    throw UsageError("the command has " + std::to_string(words.size()) + " words, but at most " + std::to_string(kMaxWords) +
                     " are allowed: put the command into a script in the container image, and submit the script");
  }
  const Arguments parsed = parse_arguments(words, [](std::string_view) { return std::nullopt; });
  if (parsed.positional.empty()) throw UsageError(kNothingToRun);
  refuse_set_options(parsed.settings);
  const auto program = std::ranges::find(words, parsed.positional.front());
  job.options.assign(words.begin(), program);
  job.program.assign(program, words.end());
}

std::string command_line_of(const KubernetesRequest& request) {
  std::string line = "ddprun submit --k8s";
  for (std::string_view rest = kKubernetesOptions; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    const std::string option(rest.substr(0, end));
    if (const auto value = request.option(option)) line += " " + option + (value->empty() ? "" : " " + shell_quoted(*value));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (!request.words.empty() && request.words.front().starts_with('-')) line += " --";
  for (const std::string& word : request.words) line += " " + shell_quoted(word);
  return line;
}

}  // namespace

KubernetesJob kubernetes_job(const KubernetesRequest& request) {
  const RequestReader read(request);
  KubernetesJob job;
  job.kind = kind_of(read);
  job.capacity = read.has("--spot") ? Capacity::kSpot : Capacity::kReserved;
  job.made_by = command_line_of(request);
  job.grace_s = read.number("--grace", job.capacity == Capacity::kSpot ? 25 : 60, 10, 86'400);
  if (job.kind == Kind::kRuntime) {
    if (!request.words.empty()) throw UsageError("--kind runtime takes no program: each TrainJob names its own program");
    job.name = runtime_name(job.capacity);
    return job;
  }
  read_command(request, job);
  job.name = read.text("--name", name_from(job.program.front()));
  if (!is_label(job.name)) {
    refuse_option("--name", job.name,
                  "at most " + std::to_string(kMaxName) + " lower-case letters, digits and dashes, starting with a letter");
  }
  job.image = read.text("--image", "");
  if (job.image.empty() || job.image.size() > 500 || job.image.find_first_of(" \t\n") != std::string::npos ||
      !is_utf8(job.image)) {
    refuse_option("--image", job.image,
                  "the container image with ddprun and the program, such as registry.example.com/train:1");
  }
  job.name_space = read.object("--namespace", "");
  job.secret = read.object("--secret", job.name + "-token");
  job.claim = read.object("--claim", "");
  job.queue = read.object("--queue", "");
  read_nodes(read, job);
  read_resources(read, job);
  read_run_dir(read, job);
  read_config(request, job);
  return job;
}

}  // namespace ddprun
