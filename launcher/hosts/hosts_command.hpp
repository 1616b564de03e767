// The commands of `ddprun --hosts`: the options that it refuses, the command of each agent, the command line of ssh, and the
// variables that the agents get. hosts_loop.cpp and --dry-run use it. The code is pure: no I/O, no clock.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/host_list.hpp"
#include "launcher/options/options.hpp"

namespace ddprun {

// The hidden subcommand that ssh starts on each host.
inline constexpr std::string_view kSuperviseCommand = "supervise-over-ssh";

// The address and port at which the nodes meet.
struct MeetingPlace {
  std::string address;
  std::string port;
};

// Throws UsageError if an option is given that --hosts sets itself, such as --nnodes.
void refuse_options_of_nodes(const Settings& settings);

// Returns the arguments of the agent with this node rank. If the job has one host, its agent gets none of the options for
// several nodes.
std::vector<std::string> agent_words(const Arguments& arguments, std::span<const Host> hosts, std::size_t rank,
                                     const MeetingPlace& place);

// Returns the command line of ssh, which runs ddprun with the arguments `words` on the host. The remote shell gets one
// command. This command starts the ddprun at the path `program`, or else the ddprun on PATH.
std::vector<std::string> ssh_words(const std::string& target, const std::string& program, std::span<const std::string> words);

// Returns the variables of `environment` ("NAME=value") that are sent to the agents. These are the variables that determine
// which programs and libraries are used, and the settings of PyTorch's libraries.
std::vector<std::string> forwarded_variables(std::span<const std::string> environment);

// Returns the variables of an agent: the supervisor's own variables, some of them replaced by forwarded variables. The local
// PATH comes before the remote PATH. Variables that would start `ddprun --hosts` again are removed.
std::vector<std::string> agent_variables(std::span<const std::string> own, std::span<const std::string> forwarded);

// Returns the text of --dry-run: the command of each agent.
std::string hosts_dry_run(const Arguments& arguments, std::span<const Host> hosts, const std::string& folder);

}  // namespace ddprun
