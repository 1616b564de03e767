// Where the output of one stream of one worker goes, by torchrun's rules: redirected, teed, raw, or dropped by the filter of
// local ranks. Pure; worker_output.cpp acts on it, console.cpp asks whether people have seen a stream.
#pragma once

#include <string>
#include <string_view>

#include "launcher/events/stream.hpp"
#include "launcher/plan/output_plan.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

struct Plan;

// What is written to files beside what redirects and tee ask for.
enum class KeptFiles {
  kNone,   // --log-dir /dev/null: nothing at all
  kAsked,  // what is redirected or teed
  kAll,    // a run directory's logs have everything
};

KeptFiles kept_files(const Plan& plan);

struct OutputRoute {
  enum class Shown { kNo, kRaw, kPrefixed };
  Shown shown = Shown::kRaw;  // on the console
  bool file = false;
  bool filtered = false;  // its lines may be wanted in filtered_stdout.log or filtered_stderr.log
};

// Without files there is nothing to redirect or tee to: everything is raw then, as under torchrun.
OutputRoute route_of(const OutputPlan& plan, KeptFiles kept, int local_rank, Stream stream);

// The template with ${role_name}, ${rank}, ${local_rank} and ${hostname} (or $rank) filled in; "$$" is "$", other names stay.
std::string line_prefix(std::string_view prefix_template, const RankAssignment& worker, std::string_view host);

}  // namespace ddprun
