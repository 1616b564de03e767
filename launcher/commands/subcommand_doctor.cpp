// `ddprun doctor`: a short table of this machine's resources for a job. run_subcommand() calls it. The only program that it
// runs is `ddptrain --version`. It writes nothing.
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/base/error.hpp"
#include "common/base/version.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/machine/detect.hpp"

extern char** environ;

namespace ddprun {
namespace {

namespace fs = std::filesystem;

std::string finding(const char* subject, const std::string& found) {
  std::string line = subject;
  line.resize(14, ' ');
  return line + found + "\n";
}

std::string cpus() {
  const CpuCount count = count_cpus();
  std::string text = std::to_string(count.usable()) + " usable: " + std::to_string(count.affinity) + " by affinity";
  if (count.quota <= 0) return text + ", no cgroup quota";
  char quota[32];
  std::snprintf(quota, sizeof quota, ", %.4g by cgroup quota", count.quota);
  return text + quota;
}

std::string gpu_names() {
  const DriverGpus driver = ask_driver();
  if (!driver.is_installed) return "; the driver's library (libnvidia-ml.so.1) is not installed";
  if (!driver.count) return "; the driver does not answer (nvidia-smi says more)";
  std::string text = "; the driver has " + std::to_string(*driver.count);
  for (const std::string& name : driver.names) text += (&name == &driver.names.front() ? ": " : ", ") + name;
  return text;
}

std::string gpus() {
  const std::vector<GpuDevice> found = find_gpus();
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto visible = value == nullptr ? std::nullopt : std::optional<std::string>(value);
  std::string text = std::to_string(visible_gpus(found, visible).size()) + " usable: " + std::to_string(found.size());
  text += !found.empty() && !found.front().uuid.empty() ? " by the driver (NVML)" : " in /dev/nvidia*";
  if (visible) text += ", CUDA_VISIBLE_DEVICES=" + *visible;
  return found.empty() ? text : text + gpu_names();
}

// The first line of `program --version`, or the reason why it could not be determined.
std::string version_of(const fs::path& program) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "cannot ask it";
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::string name = program.string(), flag = "--version";
  std::array<char*, 3> argv{name.data(), flag.data(), nullptr};
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, name.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  char buffer[1024];
  ssize_t count = 0;
  while (error == 0 && (count = ::read(ends[0], buffer, sizeof buffer)) > 0 && text.size() < 4096)
    text.append(buffer, static_cast<std::size_t>(count));
  ::close(ends[0]);
  int status = 0;
  if (error == 0) ::waitpid(pid, &status, 0);
  text.resize(std::min(text.size(), text.find('\n')));
  if (error != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return "does not start" + (text.empty() ? "" : ": " + text);
  return text;
}

std::string trainer() {
  const Machine machine = this_machine();
  auto program = machine.beside_self("ddptrain");
  if (!program) program = machine.on_path("ddptrain");
  if (!program) return "not found, neither beside ddprun nor on PATH: only scripts and programs can run";
  return program->string() + ": " + version_of(*program);
}

std::string python() {
  const auto found = find_on_path("python3");
  return found ? found->string() : "not found";
}

std::string cgroups() {
  std::string text;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers != "memory") continue;
    const fs::path root = "/sys/fs/cgroup";
    const fs::path mount = !v2 ? root / "memory" : fs::exists(root / "cgroup.controllers") ? root : root / "unified";
    fs::path folder = mount / fs::path(line.substr(second + 1)).relative_path();
    std::error_code ignored;
    if (!fs::exists(folder, ignored)) folder = mount;
    if (!fs::exists(folder, ignored)) continue;
    text += (text.empty() ? "" : ", ") + std::string(v2 ? "v2 " : "v1 memory ") + folder.string() +
            (::access(folder.c_str(), W_OK) == 0 ? " (writable)" : " (read-only)");
  }
  return text.empty() ? "none" : text;
}

std::string limit(__rlimit_resource resource, bool bytes) {
  rlimit value{};
  if (::getrlimit(resource, &value) != 0) return "?";
  if (value.rlim_cur == RLIM_INFINITY) return "unlimited";
  return bytes ? std::to_string(value.rlim_cur >> 20) + " MiB" : std::to_string(value.rlim_cur);
}

std::string limits() {
  return "open files " + limit(RLIMIT_NOFILE, false) + ", processes " + limit(RLIMIT_NPROC, false) + ", locked memory " +
         limit(RLIMIT_MEMLOCK, true) + ", core files " + limit(RLIMIT_CORE, true);
}

std::string space(const char* folder) {
  struct statvfs info {};
  if (::statvfs(folder, &info) != 0) return "not there";
  const auto mib = [&](std::uint64_t blocks) { return std::to_string(blocks * info.f_frsize >> 20) + " MiB"; };
  return mib(info.f_bavail) + " free of " + mib(info.f_blocks);
}

std::string dataset() {
  const fs::path folder = "/usr/share/datasets/fashion-mnist";
  return fs::exists(folder) ? folder.string() : "no Fashion-MNIST (Debian package dataset-fashion-mnist)";
}

}  // namespace

int examine_machine(std::span<const std::string> args) {
  if (!args.empty() && (args[0] == "--help" || args[0] == "-h")) {
    print("usage: ddprun doctor\nShows what a job on this machine will find.\n");
    return 0;
  }
  if (!args.empty()) throw UsageError("'" + args[0] + "' is one too many; usage: ddprun doctor");
  std::string text = finding("ddprun", kVersion);
  text += finding("ddptrain", trainer());
  text += finding("python", python());
  text += finding("CPUs", cpus());
  text += finding("GPUs", gpus());
  text += finding("cgroups", cgroups());
  text += finding("limits", limits());
  text += finding("/dev/shm", space("/dev/shm"));
  text += finding("dataset", dataset());
  print(text);
  return 0;
}

}  // namespace ddprun
