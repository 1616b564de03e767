// Shows the rounds in the page of `ddprun report` (page.hpp). In a time line, a mark shows each failure. Users can expand a
// block for each round, which shows the evidence of its failures. The code is pure: no I/O, no clock.
#pragma once

#include <string>
#include <vector>

#include "launcher/report/report_metrics.hpp"
#include "launcher/report_page/chart.hpp"

namespace ddprun {

// Both functions return HTML, or "" if there is no round.
std::string time_line_html(const std::vector<RoundSpan>& rounds);
std::string rounds_html(const std::vector<RoundSpan>& rounds);

// Returns a mark for each failure whose step is known.
std::vector<ChartMark> failure_marks(const std::vector<RoundSpan>& rounds);

}  // namespace ddprun
