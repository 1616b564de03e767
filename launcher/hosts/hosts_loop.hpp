// Runs the agents of `ddprun --hosts`: an event loop over ssh processes, which hosts_state.hpp controls. run_on_hosts.cpp calls
// it.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/host_list.hpp"
#include "launcher/options/options.hpp"

namespace ddprun {

// The values that all connections of a job share.
struct HostsFacts {
  std::filesystem::path ssh;
  std::string program;  // the path of ddprun
  std::string folder;   // the working directory
  std::chrono::milliseconds lost_timeout;
};

// Blocks until the job has ended, and returns its exit code. `token` is empty for a job on one host. Throws Error if the agents
// cannot be started.
int run_hosts_loop(const Arguments& arguments, const std::vector<Host>& hosts, const HostsFacts& facts, std::string_view token);

}  // namespace ddprun
