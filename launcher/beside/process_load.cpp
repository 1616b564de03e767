// Implementation of process_load.hpp.
#include "launcher/beside/process_load.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "launcher/workers/stuck_workers.hpp"

namespace ddprun {
namespace {

double disk_seconds(const std::string& process) {
  std::ifstream in(process + "stat");
  std::string text;
  std::getline(in, text);
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  constexpr int kDelayOfDisks = 40;  // delayacct_blkio_ticks, counted from the name
  for (int i = 0; i < kDelayOfDisks; ++i) fields >> field;
  return fields ? std::strtod(field.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK)) : 0;
}

}  // namespace

ProcessLoad load_of_process(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid) + "/";
  ProcessLoad load;
  std::ifstream schedule(process + "schedstat");
  if (double ran_ns = 0, queued_ns = 0; schedule >> ran_ns >> queued_ns) {
    load.ran_s = ran_ns / 1e9;
    load.queued_s = queued_ns / 1e9;
  }
  load.disk_s = disk_seconds(process);
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
