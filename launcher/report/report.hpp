// report.json: all events of a run in order, over all invocations on a run directory. Report observes the agent's events and is
// created by launcher/start/run_plan.cpp. The file is written at the start of each round, after each failure and at the end. At
// the start "exit" is null, so only a killed agent leaves a null in the file. For a temporary report see write_behind(); it is
// not written at the end if it is removed then.
//
// Note: while the job runs, a queue's thread replaces the file by rename(2) without fsync, since a restart must not wait for a
// disk. The file stays whole even if the process dies at any moment. Each text is first copied to the guardian's memory, so
// nothing is lost if the process is killed before its disk was ready. The last text is synced.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/system/file_queue.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {

inline constexpr int kReportVersion = 1;

struct ReportFacts {
  std::string title;
  std::string run_dir;               // empty for a script without a run directory
  std::vector<std::string> command;  // argv of a worker
  int restart_budget = 0;
  bool refilled_by_progress = false;
  bool synced = true;  // call fsync for the last text; false for a script, whose folder is temporary
  // kUnlessAllGoesWell: after a success the last text is not written, since the report is in a temporary folder that is
  // removed.
  enum class Kept { kAlways, kUnlessAllGoesWell } kept = Kept::kAlways;
  // Called if the end of the run could not be written to the file. The call comes from the destructor, after the queue has
  // finished.
  std::function<void(const std::string& why)> unwritten{};
  bool of_script = false;  // a script's run: the report keeps its newest metrics
};

class Report : public RunObserver {
 public:
  // Continues the report in `file`. A damaged file is renamed to report.json.bad-N, and warning() describes the problem.
  Report(std::filesystem::path file, ReportFacts facts);
  ~Report() override;
  void on(const RunEvent& event) override;

  // From now on the thread of `files` writes the file. If several texts wait, only the newest is written. `keep` receives each
  // text before that. `later` runs its argument on this thread a moment later, if the agent still exists.
  //
  // With kUnlessAllGoesWell the first text is written only after `later`, since a short successful job needs no report. The
  // texts of a failure and of the next round are also written only after `later`, but `keep` receives them immediately. So new
  // workers never wait for the report.
  using Later = std::function<void(std::function<void()> act)>;
  void write_behind(FileQueue& files, std::function<void(std::string_view text)> keep, Later later);

  // A problem of the report that was found at the start: damaged, or without the end of its run. Empty if there was none.
  const std::string& warning() const;
  // The current document.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Renders a report.json as text for people. `step_time`: a sentence about how the step time was spent; empty if unknown. Throws
// UsageError naming `name` if `text` is not a report.
std::string render_report(std::string_view text, const std::string& name, const std::string& step_time = {},
                          const std::string& memory = {}, const std::string& skipped = {});

}  // namespace ddprun
