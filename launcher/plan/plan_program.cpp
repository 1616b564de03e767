// Implementation of plan_program.hpp. It determines the kind of the first positional argument, finds the Python interpreter,
// and checks whether spare interpreters are possible.
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
#include "launcher/plan/plan_trainer.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxSpares = 4096;

fs::path found_in(const fs::path& cwd, const fs::path& file) {
  return file.is_absolute() ? file : (cwd / file).lexically_normal();
}

// True if the file starts with the magic number of an ELF file or with "#!".
bool has_program_magic(const fs::path& file) {
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

// Returns the directory of the Python hook with which a spare interpreter waits. The location differs between a source tree, a
// package and a wheel. Returns "" if it is not found.
std::string spare_hook(const Machine& machine) {
  const auto program = machine.next_to_self("ddprun");
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

// True for "python", "python3", "python3.11". `ddprun python train.py` then starts this Python from PATH.
bool is_python_name(std::string_view word) {
  constexpr std::string_view kName = "python";
  return word.starts_with(kName) && word.find_first_not_of("0123456789.", kName.size()) == std::string_view::npos;
}

// True if the file contains a single JSON object, so it is a config with a wrong suffix, such as T.JSON or train.conf.
// kind_of() then reports the suffix. Without this check, Python would fail with a misleading message: "true" is not defined.
// "{}" is also valid Python, but a useful script contains more than one JSON object.
bool contains_json_object(const fs::path& file) {
  std::error_code error;
  constexpr std::uintmax_t kMaxBytes = 4u << 20;  // the same limit as for a config
  if (!fs::is_regular_file(file, error) || fs::file_size(file, error) > kMaxBytes) return false;
  std::ifstream in(file, std::ios::binary);
  char first = '\0';
  const auto is_before_text = [](char c) { return std::string_view("\xEF\xBB\xBF \t\r\n").find(c) != std::string_view::npos; };
  while (in.get(first) && is_before_text(first)) {
  }
  if (!in || first != '{') return false;  // for almost every script the function returns here, so JSON is rarely parsed
  in.seekg(0);
  return nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true).is_object();
}

// Guesses what the user meant by a first argument that is not a file. Returns a hint that starts with ". ", or "".
std::string hint_for_missing_script(const Arguments& arguments, const Machine& machine) {
  const std::string& word = arguments.positional.front();
  if (word.find('/') != std::string::npos) return "";
  const bool ours = arguments.called_as == CalledAs::kDdprun;  // torchrun has no subcommands
  if (ours && std::find(kSubcommands.begin(), kSubcommands.end(), word) != kSubcommands.end()) {
    return ". A subcommand must be the first argument: ddprun " + word + " ...";
  }
  if (machine.on_path(word)) return ". Use --no-python to start a program on PATH";
  if (!ours || word.find('.') != std::string::npos) return "";
  if (word == "help" || word == "version") return ". Did you mean ddprun --" + word + "?";
  const std::string near = closest_name(word, kSubcommands);
  return near.empty() ? ""
                      : ". Did you mean the subcommand '" + near + "'? It must be the first argument: ddprun " + near + " ...";
}

// Throws UsageError for a directory without a __main__.py. Python could not run it either, and would print a misleading message
// ("no such module").
void refuse_folder_without_main(const fs::path& cwd, const std::string& typed) {
  const fs::path folder = found_in(cwd, typed);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored) || fs::exists(folder / "__main__.py", ignored)) return;
  std::string hint = "expected a script or a train.json";
  if (fs::exists(folder / "train.json", ignored)) hint += ". Did you mean " + (fs::path(typed) / "train.json").string() + "?";
  if (fs::exists(folder / "report.json", ignored)) hint += ". ddprun report " + typed + " shows what happened in that run";
  throw UsageError(typed + " is a folder without a __main__.py: " + hint);
}

// Makes a pipe of Bash available to the workers. Bash passes <(command) as /dev/fd/63, a pipe that ddprun inherits but its
// workers do not. This function returns /proc/<pid of ddprun>/fd/63, through which the workers can open the pipe.
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
  if (fs::is_directory(file)) throw UsageError("program " + typed + " is a folder, expected an executable file");
  if (::access(file.c_str(), X_OK) != 0)
    throw UsageError("program " + typed + " is not executable; chmod +x " + typed + " makes it executable");
}

std::optional<fs::path> executable_python_in(const fs::path& folder) {
  fs::path python = folder / "python";
  return ::access(python.c_str(), X_OK) == 0 ? std::optional(std::move(python)) : std::nullopt;
}

// Returns the Python of the virtual or conda environment that contains ddprun or a link to ddprun. torchrun also uses the
// Python with which it was installed. Returns nullopt if ddprun is not in such an environment.
std::optional<fs::path> python_of_own_environment(const Arguments& arguments, const Machine& machine) {
  const char* const name = arguments.called_as == CalledAs::kTorchrun ? "torchrun" : "ddprun";
  std::error_code ignored;
  const fs::path called =
      arguments.called_from.empty() ? machine.on_path(name).value_or("") : fs::absolute(arguments.called_from / name, ignored);
  if (called.empty()) return std::nullopt;
  for (const fs::path& program : {called, fs::weakly_canonical(called, ignored)}) {
    const fs::path folder = program.parent_path();
    const fs::path root = folder.parent_path();
    if (!fs::exists(root / "pyvenv.cfg", ignored) && !fs::exists(root / "conda-meta", ignored)) continue;
    if (auto python = executable_python_in(folder)) return python;
  }
  return std::nullopt;
}

fs::path interpreter(const Arguments& arguments, const Machine& machine, const Environment& environment) {
  if (const auto chosen = environment("PYTHON_EXEC")) {
    if (chosen->find('/') != std::string::npos) {
      if (::access(chosen->c_str(), X_OK) != 0) throw UsageError("PYTHON_EXEC=" + *chosen + ": " + std::strerror(errno));
      return fs::absolute(*chosen);
    }
    if (auto found = machine.on_path(*chosen)) return *found;
    throw UsageError("PYTHON_EXEC=" + *chosen + " is not on PATH");
  }
  if (const auto environment_python = python_of_own_environment(arguments, machine)) return *environment_python;
  for (const char* const active : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto root = environment(active);
    if (!root || root->empty()) continue;
    if (auto python = executable_python_in(fs::path(*root) / "bin")) return *python;
  }
  if (auto found = machine.on_path("python3")) return *found;
  if (auto found = machine.on_path("python")) return *found;
  throw UsageError(
      "no Python was found in PYTHON_EXEC, the environment of this program, an active virtual or conda environment, or PATH "
      "(python3). Use --no-python for a program that is not Python");
}

}  // namespace

Plan::Kind kind_of(const Arguments& arguments, const fs::path& cwd) {
  const std::string& first = arguments.positional.front();
  const bool module = arguments.settings.flag("module"), no_python = arguments.settings.flag("no-python");
  if (arguments.settings.flag("run-path")) return Plan::Kind::kPython;
  if (module && no_python) throw UsageError("--module and --no-python cannot be combined: a module needs Python");
  if (module) return Plan::Kind::kModule;
  if (no_python) return Plan::Kind::kProgram;
  if (first.ends_with(".json")) return Plan::Kind::kTrain;
  if (arguments.called_as == CalledAs::kTorchrun) return Plan::Kind::kPython;
  const fs::path file = found_in(cwd, first);
  std::error_code ignored;
  if (is_python_name(first) && !fs::is_regular_file(file, ignored)) return Plan::Kind::kProgram;
  const bool executable = fs::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
  if (!first.ends_with(".py") && executable && has_program_magic(file)) return Plan::Kind::kProgram;
  if (!first.ends_with(".py") && contains_json_object(file)) {
    throw UsageError(first +
                     " contains a JSON object, but the name of a config must end in .json: rename it, or start it as a Python "
                     "script with --run-path");
  }
  return Plan::Kind::kPython;
}

std::vector<std::string> command_of(Plan::Kind kind, const Arguments& arguments, const Machine& machine,
                                    const Environment& environment, const fs::path& cwd) {
  const std::string& first = arguments.positional.front();
  std::vector<std::string> command;
  if (kind == Plan::Kind::kProgram) {
    fs::path program = found_in(cwd, first);
    std::error_code ignored;
    const bool no_python = arguments.settings.flag("no-python");
    const bool python = !no_python && is_python_name(first) && !fs::is_regular_file(program, ignored);
    if ((no_python || python) && first.find('/') == std::string::npos) {
      const auto found = machine.on_path(first);
      if (!found) throw UsageError("program " + first + " is not on PATH; for a file in this folder use ./" + first);
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
      throw UsageError("cannot read script " + first + ": " + why + hint_for_missing_script(arguments, machine));
    }
    command = {interpreter(arguments, machine, environment).string(), "-u"};
    if (kind == Plan::Kind::kModule) command.emplace_back("-m");
    command.push_back(first);
  }
  for (std::size_t i = 1; i < arguments.positional.size(); ++i)
    command.push_back(with_pipes_of_this_process(arguments.positional[i]));
  return command;
}

void choose_spares(Plan& plan, const Settings& settings, const Machine& machine) {
  const Setting* const standby = settings.find("standby");
  const int wanted = standby != nullptr ? static_cast<int>(settings.integer("standby", 0, kMaxSpares)) : 0;
  if (wanted == 0) {
    if (settings.given("preload")) plan.notes.emplace_back("--preload has no effect without --standby");
    return;
  }
  const auto refuse_spares = [&](const std::string& why) { throw UsageError("--standby (" + standby->source + ") " + why); };
  if (plan.kind == Plan::Kind::kProgram)
    refuse_spares("requires a train.json, a Python script or a Python module, but a program was given");
  if (plan.max_restarts == 0)
    refuse_spares("requires --max-restarts above 0, found 0: without restarts, no worker is replaced");
  if (plan.numa != Numa::kNone || plan.virtual_local_rank)
    refuse_spares(std::string("cannot be combined with ") +
                  (plan.virtual_local_rank ? "--virtual-local-rank" : "--numa-binding") +
                  ": a spare interpreter is started before its rank is known");
  plan.preload = settings.text("preload");
  if (!are_module_names(plan.preload))
    refuse("preload", *settings.find("preload"), "module names separated by commas, such as torch,torch._dynamo");
  plan.record("standby", std::to_string(wanted), standby->source);
  plan.record("preload", plan.preload, settings.find("preload")->source);
  if (!is_elf(plan.command.front())) {
    plan.warnings.push_back("--standby has no effect, since " + plan.command.front() +
                            " is a script that starts Python: set PYTHON_EXEC to the Python interpreter itself");
    return;
  }
  plan.spare_hook = spare_hook(machine);
  if (plan.spare_hook.empty()) {
    plan.warnings.emplace_back(
        "--standby has no effect, since ddprun's Python files are missing in this installation: install ddprun again");
    return;
  }
  plan.standbys = wanted;
}

fs::path absolute_in(const fs::path& cwd, const fs::path& file) {
  fs::path path = (file.is_absolute() ? file : cwd / file).lexically_normal();
  return path.has_filename() ? path : path.parent_path();  // for "runs/a/" the result is "runs/a"
}

void choose_folders(Plan& plan, const Settings& settings, const fs::path& cwd) {
  plan.fresh = settings.flag("fresh");
  plan.data_changed = settings.flag("data-changed");
  const Setting resume = *settings.find("resume");
  const Setting* run_dir_setting = settings.find("run-dir");
  if (run_dir_setting != nullptr && run_dir_setting->value.empty()) refuse("run-dir", *run_dir_setting, "the name of a folder");
  const std::string run_dir = settings.text("run-dir");
  if (plan.trains()) {
    plan.run_dir = absolute_in(cwd, run_dir.empty() ? fs::path("runs") / plan.config->name : fs::path(run_dir));
    plan.record("run_dir", plan.run_dir.string(), run_dir.empty() ? "default" : settings.find("run-dir")->source);
    choose_resume(plan, settings, absolute_in(cwd, resume.value));
    if (settings.given("log-dir"))
      plan.notes.emplace_back("--log-dir has no effect with a train.json: logs are in the run directory");
    return;
  }
  if (resume.value != "auto") refuse("resume", resume, "auto for a script, which resumes by itself");
  if (plan.fresh)
    throw UsageError("--fresh (" + settings.find("fresh")->source + ") requires a train.json: a script manages its own files");
  if (plan.data_changed)
    throw UsageError("--data-changed (" + settings.find("data-changed")->source +
                     ") requires a train.json: a script manages its own data");
  if (!run_dir.empty()) {
    plan.run_dir = absolute_in(cwd, run_dir);
    plan.record("run_dir", plan.run_dir.string(), settings.find("run-dir")->source);
  }
  if (const std::string log_dir = settings.text("log-dir"); !log_dir.empty() && log_dir != "/dev/null") {
    plan.log_dir = absolute_in(cwd, log_dir);
    plan.record("log_dir", plan.log_dir.string(), settings.find("log-dir")->source);
  }
}

}  // namespace ddprun
