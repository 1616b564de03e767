// Decides where one stream of one worker goes, by torchrun's rules: redirected, teed, raw, or dropped by the filter of local
// ranks. Pure. worker_output.cpp applies the route; console.cpp checks whether a stream was shown to the user.
#pragma once

#include <string>
#include <string_view>

#include "launcher/events/stream.hpp"
#include "launcher/plan/output_plan.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

struct Plan;

// The part of the workers' output that goes to files.
enum class KeptFiles {
  kNone,   // --log-dir /dev/null: no files
  kAsked,  // only streams that --redirects and --tee name
  kAll,    // all streams, into the run directory's logs
};

KeptFiles kept_files(const Plan& plan);

struct OutputRoute {
  enum class Shown { kNo, kRaw, kPrefixed };
  Shown shown = Shown::kRaw;  // how the console shows it
  bool file = false;
  bool filtered = false;  // lines may be copied to filtered_stdout.log or filtered_stderr.log
};

// If no files are written, the options redirects and tee have no effect. Then all output is raw, as under torchrun.
OutputRoute route_of(const OutputPlan& plan, KeptFiles kept, int local_rank, Stream stream);

// Replaces ${role_name}, ${rank}, ${local_rank} and ${hostname} (or $rank). "$$" becomes "$"; other names are left unchanged.
std::string line_prefix(std::string_view prefix_template, const RankAssignment& worker, std::string_view host);

}  // namespace ddprun
