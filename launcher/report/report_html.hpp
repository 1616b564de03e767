// `ddprun report FOLDER --html FILE`: a run on one page that needs neither network nor script: how it ended, the time line of
// its rounds and causes, where the time went, loss and throughput with restarts marked, and the evidence folded under each
// cause. Pure.
#pragma once

#include <istream>
#include <string>
#include <string_view>

namespace ddprun {

// `metrics` are the lines of a metrics.jsonl; empty for a run without one. Throws UsageError naming `name` when the text is no
// report.
std::string report_page(std::string_view report, std::istream& metrics, const std::string& name);

}  // namespace ddprun
