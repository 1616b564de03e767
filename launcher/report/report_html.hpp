// `ddprun report FOLDER --html FILE`: one page about a run that needs neither network nor JavaScript. It shows how the run
// ended, the time line of rounds with causes, and how the time was spent. It also has curves of loss and throughput with marks
// at restarts, and the evidence of each cause, folded. Pure.
#pragma once

#include <istream>
#include <string>
#include <string_view>

namespace ddprun {

// `metrics` contains the lines of a metrics.jsonl; empty for a run without that file. Throws UsageError naming `name` if the
// text is not a report.
std::string report_page(std::string_view report, std::istream& metrics, const std::string& name);

}  // namespace ddprun
