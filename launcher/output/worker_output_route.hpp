// Decides by torchrun's rules where one output stream of one worker is written: to a log file, to the console, or to both. A
// stream may be written to a file (--redirects), to a file and the console (--tee), or to the console without a prefix.
// --local-ranks-filter can hide it on the console. console_stream.cpp and worker_output.cpp apply the route. failure_lines.cpp
// uses it to check whether the user has already seen a stream. The code is pure: no I/O, no clock.
#pragma once

#include <string>
#include <string_view>

#include "launcher/events/stream.hpp"
#include "launcher/plan/output_plan.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

struct Plan;

// Selects the output of the workers that is written to files.
enum class KeptFiles {
  kNone,       // no files, because of --log-dir /dev/null
  kRequested,  // only the streams that --redirects and --tee select
  kAll,        // all streams, in the run directory
};

KeptFiles kept_files(const Plan& plan);

struct OutputRoute {
  enum class Shown { kNo, kRaw, kPrefixed };
  Shown shown = Shown::kRaw;  // how the console shows the stream
  bool file = false;
  bool filtered = false;  // lines that match a filter are also copied to filtered_stdout.log or filtered_stderr.log
};

// Returns the route of one stream. If no files are written (kNone), --redirects and --tee have no effect, and the console shows
// all output without a prefix, as under torchrun.
OutputRoute route_of(const OutputPlan& plan, KeptFiles kept, int local_rank, Stream stream);

// Returns the prefix for a worker's lines: the template with ${role_name}, ${rank}, ${local_rank} and ${hostname} replaced by
// their values, even if they are written without braces. "$$" becomes "$". Other names stay unchanged.
std::string line_prefix(std::string_view prefix_template, const RankAssignment& worker, std::string_view host);

}  // namespace ddprun
