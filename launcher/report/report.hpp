// report.json: what happened, in order, over all invocations on a run directory. An observer of the agent's events, made by
// launcher/start/run_plan.cpp. The file is written at the start of each round (with "exit": null, which only a killed agent
// leaves behind; see write_behind() for a temporary one), after each failure, and at the end, unless it is removed then.
//
// Note: while the job runs, a queue's thread replaces the file by rename(2) without fsync, since a restart must not wait for a
// disk. The process may die at any moment, and the file is still whole. Each text goes to the guardian's memory first, so a
// process that is killed before its disk was ready loses nothing. The last text is synced.
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
  std::vector<std::string> command;  // the command of a worker
  int restart_budget = 0;
  bool refilled_by_progress = false;
  bool synced = true;  // fsync the last text; false for a script, whose folder is temporary
  // kUnlessAllGoesWell: the last text is not written, since nobody looks for a report in a temporary folder that is removed.
  enum class Kept { kAlways, kUnlessAllGoesWell } kept = Kept::kAlways;
  // Called when the run's end could not be written into the file: when the report is destroyed, after its queue is done.
  std::function<void(const std::string& why)> unwritten{};
  bool of_script = false;  // then its newest figures are kept
};

class Report : public RunObserver {
 public:
  // Continues the report in `file`. A damaged one is renamed to report.json.bad-N, and warning() says so.
  Report(std::filesystem::path file, ReportFacts facts);
  ~Report() override;
  void on(const RunEvent& event) override;

  // From now on the thread of that queue writes the file; when several texts wait, only the newest. `keep` gets each text
  // before. `later` calls its argument on this thread a moment later, if the agent is still there. The first text of a report
  // that nobody looks for after a success (kUnlessAllGoesWell) waits for that, since a short job needs none. So do those of a
  // failure and of the next round, of which `keep` hears at once: new workers wait for no report.
  using Later = std::function<void(std::function<void()> act)>;
  void write_behind(FileQueue& files, std::function<void(std::string_view text)> keep, Later later);

  // What was wrong with the report found at the start: damaged, or without the end of its run. Empty: nothing.
  const std::string& warning() const;
  // The document as it is now.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A report.json as text for people. `step_time`: where the time of its steps went, in words; empty: it is not known. Throws
// UsageError naming `name` when `text` is no report.
std::string render_report(std::string_view text, const std::string& name, const std::string& step_time = {},
                          const std::string& memory = {}, const std::string& skipped = {});

}  // namespace ddprun
