// `ddprun join HOST:PORT`: a node that knows only where the job is and its token gets the rest from the node that coordinates:
// options, program and config. Called by main(), which then goes on as if all of it had been typed here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// What the coordinator tells: JSON with its options, program, config and folder.
std::string job_text(const Arguments& arguments, const Plan& plan, const std::filesystem::path& cwd);

struct JoinedJob {
  Arguments arguments;
  std::string run_id;
  std::string host;
  std::uint16_t port = 0;
  std::string token;
  std::filesystem::path folder;  // that the coordinator was started in
  std::filesystem::path files;   // with the config and the restart policy, to be removed at the end; empty: neither
};

// `args`: HOST:PORT and options, without "join". Says what it is going to run, since that is another machine's choice. Throws
// UsageError, TokenError, and Error with kPeersMissing.
JoinedJob fetch_job(std::span<const std::string> args, const Environment& environment);

// The plan of a node that joins: another one coordinates, at the address that was typed.
void follow(Plan& plan, const JoinedJob& job);

}  // namespace ddprun
