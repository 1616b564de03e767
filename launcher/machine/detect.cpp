// Implementation of detect.hpp: finds programs and assembles the Machine. CPUs are detected in detect_cpus.cpp, GPUs in
// detect_gpus.cpp.
#include "launcher/machine/detect.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include <sys/stat.h>

#include "common/base/split.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

bool is_executable(const fs::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(file.c_str(), X_OK) == 0;
}

std::optional<fs::path> find_next_to_self(std::string_view name) {
  char self[4096];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self);
  fs::path program(std::string(self, static_cast<std::size_t>(std::max<ssize_t>(length, 0))));
  if (program.empty()) {  // if /proc is not mounted, use the path that was passed to exec
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel gives the address as a number
    const auto* const exec_path = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
    std::error_code error;
    if (exec_path != nullptr) program = fs::canonical(exec_path, error);
    if (error || program.empty()) return std::nullopt;
  }
  const fs::path candidate = program.parent_path() / name;
  if (!is_executable(candidate)) return std::nullopt;
  return candidate;
}

// Returns an environment variable. An empty variable differs from an unset one: an empty CUDA_VISIBLE_DEVICES hides every GPU.
std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

std::optional<fs::path> find_on_path(std::string_view name) {
  const char* variable = std::getenv("PATH");
  for (const std::string_view folder : split(variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin", ':')) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (is_executable(candidate)) return fs::absolute(candidate);
  }
  return std::nullopt;
}

Machine this_machine() {
  // Stores the result of NVML, so that NVML is queried at most once: it takes tens of milliseconds to start.
  const auto devices = std::make_shared<std::optional<std::vector<GpuDevice>>>();
  const auto gpu_devices = [devices] {
    if (!*devices) *devices = visible_gpus(find_gpus(), variable("CUDA_VISIBLE_DEVICES"));
    return **devices;
  };
  return {[] { return count_cpus().usable(); },
          [gpu_devices] { return static_cast<int>(gpu_devices().size()); },
          find_on_path,
          find_next_to_self,
          [] { return visible_xpus(count_intel_gpus(), variable("ZE_AFFINITY_MASK")); },
          gpu_devices,
          read_topology,
          [] { return static_cast<int>(visible_gpus(gpus_by_device_nodes(), variable("CUDA_VISIBLE_DEVICES")).size()); },
          standard_input_state,
          address_of_interface,
          [](const std::vector<std::string>& command) { return output_of(command); }};
}

}  // namespace ddprun
