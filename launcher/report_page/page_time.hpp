// Shows how a run has used its time, in the page of `ddprun report` (page.hpp): a bar with the parts of the run's time, and the
// parts of a step. The code is pure: no I/O, no clock.
#pragma once

#include <string>

#include "launcher/report/report_metrics.hpp"
#include "launcher/report/step_parts.hpp"

namespace ddprun {

// Returns "" if no time was accounted and no step had parts.
std::string time_html(const ReportMetrics& report, const StepParts& steps);

}  // namespace ddprun
