// Where one stream of one worker goes, by torchrun's rules: redirected, teed, raw, or dropped by the filter of local ranks.
// Pure; worker_output.cpp acts on it, and console.cpp asks it whether people have seen a stream.
#pragma once

#include <string>
#include <string_view>

#include "launcher/events/stream.hpp"
#include "launcher/plan/output_plan.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

struct Plan;

// Which output of workers goes to files.
enum class KeptFiles {
  kNone,   // --log-dir /dev/null: nothing at all
  kAsked,  // only what redirects and tee ask for
  kAll,    // everything: into a run directory's logs
};

KeptFiles kept_files(const Plan& plan);

struct OutputRoute {
  enum class Shown { kNo, kRaw, kPrefixed };
  Shown shown = Shown::kRaw;  // on the console
  bool file = false;
  bool filtered = false;  // its lines may be wanted in filtered_stdout.log or filtered_stderr.log
};

// Without files nothing can be redirected or teed: then everything is raw, as under torchrun.
OutputRoute route_of(const OutputPlan& plan, KeptFiles kept, int local_rank, Stream stream);

// Fills in ${role_name}, ${rank}, ${local_rank} and ${hostname} (or $rank). "$$" becomes "$", other names stay.
std::string line_prefix(std::string_view prefix_template, const RankAssignment& worker, std::string_view host);

}  // namespace ddprun
