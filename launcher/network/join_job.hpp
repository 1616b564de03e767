// `ddprun join HOST:PORT`: a node that knows only the job's address and token receives the rest from the coordinator's node:
// options, program and config. main() calls it, and then continues as if the user had typed the whole command here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// The coordinator's answer: JSON with its options, program, config and working directory.
std::string job_text(const Arguments& arguments, const Plan& plan, const std::filesystem::path& cwd);

struct JoinedJob {
  Arguments arguments;
  std::string run_id;
  std::string host;
  std::uint16_t port = 0;
  std::string token;
  std::filesystem::path folder;  // the coordinator's working directory
  std::filesystem::path files;   // temporary folder with config and restart policy, removed at the end; empty: there are none
};

// `args` are HOST:PORT and options, without "join". Prints the command that it is going to run, since another machine has
// chosen it. Throws UsageError, TokenError, and Error with kPeersMissing.
JoinedJob fetch_job(std::span<const std::string> args, const Environment& environment);

// Changes `plan` into that of a joining node: another node is the coordinator, at the address that the user typed.
void follow(Plan& plan, const JoinedJob& job);

}  // namespace ddprun
