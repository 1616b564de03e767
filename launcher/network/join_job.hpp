// `ddprun join HOST:PORT`: starts a node whose user gives only the job's address and token. The node receives options, program
// and config from the coordinator's node. Options that the user types on this node take precedence. After fetch_job(), main()
// continues as if the user had typed the whole command on this node.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"
#include "rendezvous/protocol/round.hpp"

namespace ddprun {

// Returns the coordinator's answer to a joining node: JSON with the options, program, config and working directory of the
// coordinator's node.
std::string job_text(const Arguments& arguments, const Plan& plan, const std::filesystem::path& cwd);

struct JoinedJob {
  Arguments arguments;
  rendezvous::Address coordinator;
  std::string run_id{};
  std::string token{};
  std::filesystem::path folder{};  // the coordinator's working directory
  std::filesystem::path files{};   // temporary directory with config and restart policy, removed at the end; may be empty
};

// Gets the job from the coordinator. `args` are HOST:PORT and options, without "join". Prints the command that this node will
// run, since another machine has chosen it. Throws UsageError, TokenError, and Error with ExitCode::kPeersMissing.
JoinedJob fetch_job(std::span<const std::string> args, const Environment& environment);

// Changes the plan into the plan of a node that joins the job. Another node is the coordinator, at the address that the user
// typed.
void follow(Plan& plan, const JoinedJob& job);

}  // namespace ddprun
