// Turns the end of an ssh process into one line for the user. The code is pure: no I/O, no clock.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

struct SshEnd {
  int exit_code = 0;        // 128 + N after signal N
  bool greeted = false;     // the supervisor on the host had started
  std::string_view errors;  // the last bytes that ssh and the remote shell wrote to stderr
};

struct SshProblem {
  std::string text;       // what happened and what to do, without the name of the host
  bool is_usage = false;  // true if the user must correct something; false if the host may become reachable later
};

// `target` is the host in the command line of ssh, `program` the path of ddprun on this machine, and `version` its version.
SshProblem ssh_problem(const SshEnd& end, const std::string& target, const std::string& program, const std::string& version);

}  // namespace ddprun
