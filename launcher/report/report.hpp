// report.json: what happened, in order, over all invocations on a run directory. An observer of the agent's events, made by
// launcher/start/run_plan.cpp. It is written at the start of each round (with "exit": null, which only an agent that was killed
// leaves behind), after each failure and at the end, unless it is to be removed then.
//
// Note: while the job runs the file is replaced by rename without fsync, behind a queue, since a restart must not wait for a
// disk; the process can die at any moment and the file is whole. What it says reaches the guardian's memory first, so that
// nothing is lost with a process that was killed before its disk was ready. The last one is synced.
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
  std::string run_dir;               // empty for a script without one
  std::vector<std::string> command;  // a worker's
  int restart_budget = 0;
  bool refilled_by_progress = false;
  bool synced = true;  // the last one to disk; false for a script's, whose folder is a temporary one
  // Whether it is worth its last write: a temporary folder in which nobody will look for anything is removed.
  enum class Kept { kAlways, kUnlessAllGoesWell } kept = Kept::kAlways;
  // The run's end could not be written into the file. Told when the report goes, after its queue is done.
  std::function<void(const std::string& why)> unwritten{};
};

class Report : public RunObserver {
 public:
  // Continues what `file` holds. A report that is damaged is set aside as report.json.bad-N, and said in warning().
  Report(std::filesystem::path file, ReportFacts facts);
  ~Report() override;
  void on(const RunEvent& event) override;

  // From now on the file is written on that queue's thread, the newest text when several wait. Each text is handed to `keep`
  // before.
  void write_behind(FileQueue& files, std::function<void(std::string_view text)> keep);

  // About the report found at the start: damaged, or without the end of its run. Empty when all is well.
  const std::string& warning() const;
  // The document as it is now.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A report.json as people read it. Throws UsageError naming `name` when the text is no report.
std::string render_report(std::string_view text, const std::string& name);

}  // namespace ddprun
