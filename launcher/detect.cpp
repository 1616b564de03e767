// See detect.hpp: GPUs, programs and the Machine made of them. CPUs are in detect_cpus.cpp.
#include "launcher/detect.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include <sys/stat.h>

namespace ddprun {
namespace {

namespace fs = std::filesystem;

bool is_executable(const fs::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(file.c_str(), X_OK) == 0;
}

std::optional<fs::path> find_beside_self(std::string_view name) {
  char self[4096];
  const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self);
  if (length <= 0) return std::nullopt;
  const fs::path candidate = fs::path(std::string(self, static_cast<std::size_t>(length))).parent_path() / name;
  if (!is_executable(candidate)) return std::nullopt;
  return candidate;
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

int visible_gpus(int devices, const std::optional<std::string>& visible) {
  if (!visible) return devices;
  std::set<std::string_view> seen;
  std::string_view rest = *visible;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view entry = trimmed(rest.substr(0, comma));
    if (entry.empty()) break;
    if (is_number(entry)) {
      int index = 0;
      const auto [stop, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
      if (error != std::errc() || index >= devices) break;
    } else if (!entry.starts_with("GPU-") && !entry.starts_with("MIG-")) {
      break;
    }
    if (!seen.insert(entry).second) return 0;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return devices == 0 ? 0 : static_cast<int>(seen.size());
}

int GpuCount::usable() const {
  return visible_gpus(devices, visible);
}

GpuCount count_gpus() {
  GpuCount count;
  if (DIR* dev = ::opendir("/dev")) {
    while (const dirent* entry = ::readdir(dev)) {
      const std::string_view name = entry->d_name;
      if (name.starts_with("nvidia") && is_number(name.substr(6))) ++count.devices;
    }
    ::closedir(dev);
  }
  // Set but empty hides every GPU, so it must not count as unset here.
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) count.visible = visible;
  return count;
}

std::optional<fs::path> find_on_path(std::string_view name) {
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const std::size_t colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (is_executable(candidate)) return fs::absolute(candidate);
    if (colon == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(colon + 1);
  }
}

Machine this_machine() {
  return {[] { return count_cpus().usable(); }, [] { return count_gpus().usable(); }, find_on_path, find_beside_self};
}

}  // namespace ddprun
