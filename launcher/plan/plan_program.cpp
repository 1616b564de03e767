// Implementation of plan_program.hpp: the kind of the first positional argument, the Python interpreter that runs it, and spare
// interpreters.
#include "launcher/plan/plan_program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "common/base/suggest.hpp"
#include "launcher/options/subcommand_names.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr int kMostSpares = 4096;

fs::path found_in(const fs::path& cwd, const fs::path& file) {
  return file.is_absolute() ? file : (cwd / file).lexically_normal();
}

// True if the file begins with ELF's magic number or "#!".
bool starts_like_a_program(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  char magic[4] = {};
  const ssize_t count = ::read(fd, magic, sizeof magic);
  ::close(fd);
  return (count == 4 && std::memcmp(magic, "\177ELF", 4) == 0) || (count >= 2 && magic[0] == '#' && magic[1] == '!');
}

bool is_elf(const fs::path& file) {
  char magic[4] = {};
  return std::ifstream(file, std::ios::binary).read(magic, sizeof magic) && std::memcmp(magic, "\177ELF", 4) == 0;
}

// The folder with the Python hook that makes an interpreter a spare. Sources, packages and wheels have it in different places.
// Empty if it was not found.
std::string spare_hook(const Machine& machine) {
  const auto program = machine.beside_self("ddprun");
  if (!program) return "";
  const fs::path prefix = program->parent_path().parent_path();
  std::vector<fs::path> places{prefix / "share/ddprun/python", prefix.parent_path() / "python"};
  std::error_code ignored;
  for (const auto& version : fs::directory_iterator(prefix / "lib", ignored)) {
    if (version.path().filename().string().starts_with("python3")) places.push_back(version.path() / "site-packages");
  }
  for (const fs::path& place : places) {
    fs::path folder = place / "ddprun/_spare";
    if (fs::is_regular_file(folder / "sitecustomize.py", ignored)) return folder.string();
  }
  return "";
}

bool are_module_names(std::string_view names) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,";
  return names.find_first_not_of(kLetters) == std::string_view::npos && names.find("..") == std::string_view::npos;
}

// True for "python", "python3", "python3.11": `ddprun python train.py` starts that Python from PATH.
bool names_a_python(std::string_view word) {
  constexpr std::string_view kName = "python";
  return word.starts_with(kName) && word.find_first_not_of("0123456789.", kName.size()) == std::string_view::npos;
}

// True for a config with another suffix, such as T.JSON or train.conf. Python would fail on it with the message that "true" is
// not defined. Python can run "{}" as well, but no real script is a single JSON object.
bool holds_a_json_object(const fs::path& file) {
  std::error_code error;
  constexpr std::uintmax_t kMostBytes = 4u << 20;  // the same limit as for a config
  if (!fs::is_regular_file(file, error) || fs::file_size(file, error) > kMostBytes) return false;
  std::ifstream in(file, std::ios::binary);
  char first = '\0';
  const auto is_before_text = [](char c) { return std::string_view("\xEF\xBB\xBF \t\r\n").find(c) != std::string_view::npos; };
  while (in.get(first) && is_before_text(first)) {
  }
  if (!in || first != '{') return false;  // for almost every script the check ends here
  in.seekg(0);
  return nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true).is_object();
}

// A hint for a first argument that is not a file, with a guess at the user's intention. It begins with ". ", or is empty.
std::string hint_for_missing_script(const ProgramChoice& choice, const Machine& machine) {
  const std::string& word = choice.positional.front();
  if (word.find('/') != std::string::npos) return "";
  const bool ours = choice.called_as == CalledAs::kDdprun;  // torchrun has no subcommands
  if (ours && std::find(kSubcommands.begin(), kSubcommands.end(), word) != kSubcommands.end()) {
    return ". The subcommand stands before everything else: ddprun " + word + " ...";
  }
  if (machine.on_path(word)) return ". A program on PATH is started with --no-python";
  if (!ours || word.find('.') != std::string::npos) return "";
  if (word == "help" || word == "version") return ". Did you mean ddprun --" + word + "?";
  const std::string near = nearest(word, kSubcommands);
  return near.empty()
             ? ""
             : ". Did you mean the subcommand '" + near + "'? It stands before everything else: ddprun " + near + " ...";
}

// Python runs a folder that has a __main__.py. For any other folder its message would be misleading: no such module.
void refuse_folder_without_main(const fs::path& cwd, const std::string& typed) {
  const fs::path folder = found_in(cwd, typed);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored) || fs::exists(folder / "__main__.py", ignored)) return;
  std::string hint = "expected a script or a train.json";
  if (fs::exists(folder / "train.json", ignored)) hint += ". Did you mean " + (fs::path(typed) / "train.json").string() + "?";
  if (fs::exists(folder / "report.json", ignored)) hint += ". ddprun report " + typed + " shows what happened in that run";
  throw UsageError(typed + " is a folder without a __main__.py: " + hint);
}

// Bash passes <(command) as /dev/fd/63, a pipe that this process inherits but workers do not. Through /proc/<our pid>/fd the
// workers can open it as well.
std::string with_pipes_of_this_process(const std::string& argument) {
  const std::size_t equals = argument.starts_with('-') ? argument.find('=') : std::string::npos;
  const std::size_t begin = equals == std::string::npos ? 0 : equals + 1;
  const std::string_view value = std::string_view(argument).substr(begin);
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!value.starts_with(folder)) continue;
    const std::string_view number = value.substr(folder.size());
    if (number.empty() || number.size() > 9 || number.find_first_not_of("0123456789") != std::string_view::npos) continue;
    struct stat info {};
    if (std::stoi(std::string(number)) <= STDERR_FILENO || ::fstat(std::stoi(std::string(number)), &info) != 0) continue;
    return argument.substr(0, begin) + "/proc/" + std::to_string(::getpid()) + "/fd/" + std::string(number);
  }
  return argument;
}

void require_executable(const fs::path& file, const std::string& typed) {
  if (::access(file.c_str(), F_OK) != 0) throw UsageError("program " + typed + ": " + std::strerror(errno));
  if (fs::is_directory(file)) throw UsageError("program " + typed + " is a folder");
  if (::access(file.c_str(), X_OK) != 0)
    throw UsageError("program " + typed + " is not executable; chmod +x " + typed + " makes it so");
}

std::optional<fs::path> executable_python_in(const fs::path& folder) {
  fs::path python = folder / "python";
  return ::access(python.c_str(), X_OK) == 0 ? std::optional(std::move(python)) : std::nullopt;
}

// torchrun uses the Python with which it was installed. ddprun does the same if the program, or a link to it, is in a virtual
// or conda environment. In any other place its location implies no Python.
std::optional<fs::path> python_of_own_environment(const ProgramChoice& choice, const Machine& machine) {
  const char* const name = choice.called_as == CalledAs::kTorchrun ? "torchrun" : "ddprun";
  std::error_code ignored;
  const fs::path called =
      choice.called_from.empty() ? machine.on_path(name).value_or("") : fs::absolute(choice.called_from / name, ignored);
  if (called.empty()) return std::nullopt;
  for (const fs::path& program : {called, fs::weakly_canonical(called, ignored)}) {
    const fs::path folder = program.parent_path();
    const fs::path root = folder.parent_path();
    if (!fs::exists(root / "pyvenv.cfg", ignored) && !fs::exists(root / "conda-meta", ignored)) continue;
    if (auto python = executable_python_in(folder)) return python;
  }
  return std::nullopt;
}

fs::path interpreter(const ProgramChoice& choice, const Machine& machine,
                     const std::function<std::optional<std::string>(std::string_view)>& environment) {
  if (const auto chosen = environment("PYTHON_EXEC")) {
    if (chosen->find('/') != std::string::npos) {
      if (::access(chosen->c_str(), X_OK) != 0) throw UsageError("PYTHON_EXEC=" + *chosen + ": " + std::strerror(errno));
      return fs::absolute(*chosen);
    }
    if (auto found = machine.on_path(*chosen)) return *found;
    throw UsageError("PYTHON_EXEC=" + *chosen + " is not on PATH");
  }
  if (const auto beside = python_of_own_environment(choice, machine)) return *beside;
  for (const char* const active : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto root = environment(active);
    if (!root || root->empty()) continue;
    if (auto python = executable_python_in(fs::path(*root) / "bin")) return *python;
  }
  if (auto found = machine.on_path("python3")) return *found;
  if (auto found = machine.on_path("python")) return *found;
  throw UsageError(
      "no Python was found: neither PYTHON_EXEC, an environment that this program lies in, an active virtual or conda "
      "environment nor python3 on PATH. Programs that are not Python need --no-python");
}

}  // namespace

Plan::Kind kind_of(const ProgramChoice& choice, const fs::path& cwd) {
  const std::string& first = choice.positional.front();
  if (choice.run_path) return Plan::Kind::kPython;
  if (choice.module && choice.no_python) throw UsageError("--module and --no-python exclude each other: a module needs Python");
  if (choice.module) return Plan::Kind::kModule;
  if (choice.no_python) return Plan::Kind::kProgram;
  if (first.ends_with(".json")) return Plan::Kind::kTrain;
  if (choice.called_as == CalledAs::kTorchrun) return Plan::Kind::kPython;
  const fs::path file = found_in(cwd, first);
  std::error_code ignored;
  if (names_a_python(first) && !fs::is_regular_file(file, ignored)) return Plan::Kind::kProgram;
  const bool executable = fs::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
  if (!first.ends_with(".py") && executable && starts_like_a_program(file)) return Plan::Kind::kProgram;
  if (!first.ends_with(".py") && holds_a_json_object(file)) {
    throw UsageError(first +
                     " holds a JSON object, but only a name that ends in .json is taken as a config: rename it. "
                     "--run-path starts it as a Python script all the same");
  }
  return Plan::Kind::kPython;
}

std::vector<std::string> command_of(Plan::Kind kind, const ProgramChoice& choice, const Machine& machine,
                                    const std::function<std::optional<std::string>(std::string_view)>& environment,
                                    const fs::path& cwd) {
  const std::string& first = choice.positional.front();
  std::vector<std::string> command;
  if (kind == Plan::Kind::kProgram) {
    fs::path program = found_in(cwd, first);
    std::error_code ignored;
    const bool python = !choice.no_python && names_a_python(first) && !fs::is_regular_file(program, ignored);
    if ((choice.no_python || python) && first.find('/') == std::string::npos) {
      const auto found = machine.on_path(first);
      if (!found) throw UsageError("program " + first + " is not on PATH; a file in this folder is ./" + first);
      program = *found;
    }
    require_executable(program, first);
    command = {program.string()};
    if (python) command.emplace_back("-u");  // unbuffered, as for a script, so that each line is shown when it is printed
  } else {
    if (kind == Plan::Kind::kPython) refuse_folder_without_main(cwd, first);
    const bool from_input = first == "-";  // Python reads the script from standard input
    if (kind == Plan::Kind::kPython && !from_input && ::access(found_in(cwd, first).c_str(), R_OK) != 0) {
      const std::string why = std::strerror(errno);
      throw UsageError("cannot read script " + first + ": " + why + hint_for_missing_script(choice, machine));
    }
    command = {interpreter(choice, machine, environment).string(), "-u"};
    if (kind == Plan::Kind::kModule) command.emplace_back("-m");
    command.push_back(first);
  }
  for (std::size_t i = 1; i < choice.positional.size(); ++i)
    command.push_back(with_pipes_of_this_process(choice.positional[i]));
  return command;
}

void choose_spares(Plan& plan, const Settings& settings, const Machine& machine) {
  const Setting* const standby = settings.find("standby");
  const int wanted = standby != nullptr ? static_cast<int>(settings.integer("standby", 0, kMostSpares)) : 0;
  if (wanted == 0) {
    if (settings.given("preload")) plan.notes.emplace_back("--preload has no effect without --standby");
    return;
  }
  const auto refuse_spares = [&](const std::string& why) { throw UsageError("--standby (" + standby->source + ") " + why); };
  if (plan.kind == Plan::Kind::kProgram)
    refuse_spares("goes with a train.json, a Python script or a module, not with a program");
  if (plan.max_restarts == 0) refuse_spares("needs restarts: give --max-restarts, or no worker is ever replaced");
  if (plan.numa != Numa::kNone || plan.virtual_local_rank)
    refuse_spares(std::string("does not go with ") + (plan.virtual_local_rank ? "--virtual-local-rank" : "--numa-binding") +
                  ": a spare interpreter is started before it is known whose place it takes");
  plan.preload = settings.text("preload");
  if (!are_module_names(plan.preload))
    refuse("preload", *settings.find("preload"), "names of modules with commas between, such as torch,torch._dynamo");
  plan.sources.push_back({"standby", std::to_string(wanted), standby->source});
  plan.sources.push_back({"preload", plan.preload, settings.find("preload")->source});
  if (!is_elf(plan.command.front())) {
    plan.warnings.push_back("--standby: workers start without spares, since " + plan.command.front() +
                            " is a script that starts Python; PYTHON_EXEC names the interpreter itself");
    return;
  }
  plan.spare_hook = spare_hook(machine);
  if (plan.spare_hook.empty()) {
    plan.warnings.emplace_back(
        "--standby: workers start without spares, since ddprun's Python files are not where its installation has them");
    return;
  }
  plan.standbys = wanted;
}

}  // namespace ddprun
