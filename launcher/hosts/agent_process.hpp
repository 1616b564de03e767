// Starts the agent of a host for its supervisor. The agent gets SIGTERM if the supervisor dies.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/system/descriptor.hpp"

namespace ddprun {

// Makes reads and writes return EAGAIN instead of waiting.
void do_not_block(int fd);

// Returns the environment variables of this process, as "NAME=value".
std::vector<std::string> own_variables();

struct AgentProcess {
  pid_t pid = 0;
  Descriptor ended{};   // a pidfd, readable when the process has ended
  Descriptor output{};  // the pipe of its stdout, in non-blocking mode
  Descriptor errors{};  // the pipe of its stderr, in non-blocking mode
};

// Runs this program with the arguments `words`, including argv[0], and exactly these variables, whose memory is wiped. Its
// standard input is empty. Throws std::system_error.
AgentProcess start_agent_process(const std::vector<std::string>& words, std::vector<std::string> variables);

// Runs a program with the arguments `words`, including argv[0]. Its standard input is a pipe too. The program leads a process
// group, so that a Ctrl-C does not reach it, and gets SIGTERM if this process dies. Throws std::system_error.
struct PipedProcess : AgentProcess {
  Descriptor input{};  // the pipe of its stdin, in non-blocking mode
};
PipedProcess start_piped_process(const std::filesystem::path& program, const std::vector<std::string>& words);

}  // namespace ddprun
