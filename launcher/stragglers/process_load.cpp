#include "launcher/stragglers/process_load.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "common/system/descriptor.hpp"
#include "launcher/leftovers/stuck_workers.hpp"

namespace ddprun {
namespace {

using Buffer = std::array<char, 1024>;  // larger than the content of either /proc file

// Reads a file of /proc. It uses read() instead of a stream, since the agent reads these files at least once a second for each
// worker. Returns an empty text if the process has ended.
std::string_view read_file(const std::string& path, Buffer& buffer) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
  return {buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

// Returns the word at position `index` as a number; 0 if the text has fewer words.
double number_at(std::string_view text, int index) {
  for (; index > 0; --index) {
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return 0;
    text.remove_prefix(space + 1);
  }
  std::uint64_t number = 0;  // an integer, since parsing a fraction would make the launcher depend on libm
  std::from_chars(text.data(), text.data() + text.size(), number);
  return static_cast<double>(number);
}

}  // namespace

double disk_seconds_of(std::string_view stat) {
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return 0;
  constexpr int kDiskDelayField = 40;  // index of the field delayacct_blkio_ticks, counted from the process name
  return number_at(stat.substr(name_end), kDiskDelayField) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

ProcessLoad load_of_process(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid) + "/";
  Buffer buffer;
  ProcessLoad load;
  const std::string_view schedule = read_file(process + "schedstat", buffer);
  load.ran_s = number_at(schedule, 0) / 1e9;
  load.queued_s = number_at(schedule, 1) / 1e9;
  load.disk_s = disk_seconds_of(read_file(process + "stat", buffer));
  return load;
}

bool waits_for_disk(pid_t pid) {
  if (process_state(pid) == 'D') return true;
  std::ifstream children("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  for (pid_t child = 0; children >> child;)
    if (process_state(child) == 'D') return true;
  return false;
}

}  // namespace ddprun
