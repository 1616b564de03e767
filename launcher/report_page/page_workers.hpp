// Builds the part of the page about a job that runs (page.hpp): its state and progress, the workers with their GPUs and logs,
// and the stragglers of the newest round. The code is pure: no I/O, no clock.
#pragma once

#include <string>

#include "launcher/report/report_metrics.hpp"
#include "launcher/report_page/live_job.hpp"

namespace ddprun {

// Returns the head of the page: state, progress and the last failure.
std::string live_state_html(const LiveJob& job);
// Returns a table with a row for each worker. A column without values is omitted.
std::string workers_html(const LiveJob& job);
// Returns a list of the ranks that are stragglers now, according to the newest round of the report.
std::string stragglers_html(const ReportMetrics& report);

}  // namespace ddprun
