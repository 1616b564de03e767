// Builds the page of `ddprun report --html`: one HTML page about a run, which loads no other file. It shows the end of the
// run, and a time line of rounds with their failures. It also shows curves with marks at failures, the parts of the run's
// time, and a table of metrics. Users can expand the evidence of each failure. For a job that runs (--follow), it also shows
// workers and stragglers, and reloads itself. The code is pure: no I/O, no clock.
//
// Each part of the page has a file: page_rounds, page_workers, page_time and chart. page_style has the colours and the script.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "launcher/report_page/curves.hpp"
#include "launcher/report_page/live_job.hpp"

namespace ddprun {

// The behaviour of the page in a browser. kStays: it has no script. kReloads: it loads itself again after kReloadInterval, and
// a script restores the scroll position and expands the same blocks again. kLast: it is the last of the pages that reload; it
// has the script, but does not reload.
enum class PageKind { kStays, kReloads, kLast };
inline constexpr std::chrono::seconds kReloadInterval{5};

struct PageInput {
  std::string_view report;  // text of report.json
  const Curves& curves;
  std::string name;               // file name of the report, for errors
  const LiveJob* live = nullptr;  // set if the job is running
  PageKind kind = PageKind::kStays;
};

// Throws UsageError, which contains `name`, if the text is not a report.
std::string report_page(const PageInput& input);

}  // namespace ddprun
