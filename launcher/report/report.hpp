// report.json contains the events of a run in order, over all invocations on a run directory. launcher/launch/run_plan.cpp
// creates the Report, which observes the agent's events.
//
// A report is needed most when something went wrong, so it must survive the death of the agent. The file is therefore written
// at the start of each round, after each failure, and at the end. At the start "exit" is null. If the agent is killed, its
// guardian fills in "exit"; null remains only if the guardian is killed as well. A script without a run directory gets a
// temporary report, which is not written after a success (see write_behind()).
//
// Note: rename(2) without fsync. A restart must not wait for a disk. So while the job runs, a queue's thread replaces the file
// by rename(2) without fsync. A process that dies at any moment leaves either the old or the new text. Each text is first
// copied to the guardian's memory. If the agent is killed before the disk has answered, the guardian still has the newest text.
// Only the last text is synced.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/system/file_queue.hpp"
#include "common/system/realtime.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/report/report_document.hpp"
#include "launcher/report/report_file.hpp"

namespace ddprun {

class Report : public RunObserver {
 public:
  // Continues the report in `file`. If the file is damaged, it is renamed to report.json.bad-N, and warning() describes the
  // problem.
  Report(const std::filesystem::path& file, ReportFacts facts);
  ~Report() override;
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;
  void on(const RunEvent& event) override;

  // After this call the thread of `files` writes the file. If several texts wait, only the newest one is written. `keep`
  // receives each text before it is queued. `later` runs its argument on the calling thread a short time later, if the agent
  // still exists.
  //
  // Writes of the report must not delay the start of workers. So the texts about a failure and about the next round reach
  // `keep` immediately. They are written to the file only after `later`. With kUnlessSuccessful the first text is also written
  // only after `later`, since a short successful job needs no report.
  using Later = std::function<void(std::function<void()> act)>;
  void write_behind(FileQueue& files, std::function<void(std::string_view text)> keep, Later later);

  // Returns the problem with the earlier report that was found at the start: the file is damaged, or it lacks the end of its
  // run. Returns "" if there was no problem.
  const std::string& warning() const { return warning_; }
  // Returns the text of the current document.
  std::string text() { return document_.text(); }
  // Returns the current document on one line, for a client of the control socket. The file is only written at failures and at
  // the start of rounds. This text, in contrast, contains the newest step and the time until now.
  std::string line() { return document_.line(realtime_ns(), clock_was_set_ns()); }

 private:
  std::int64_t clock_was_set_ns() const;

  ReportFile file_;
  ReportDocument document_;
  std::string warning_;
  bool is_over_ = false;  // the run has ended; from now on a failed write must be reported
  Later later_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  std::chrono::steady_clock::time_point opened_ = std::chrono::steady_clock::now();
  std::int64_t opened_ns_ = realtime_ns();
};

// Renders a report.json as text for users. `step_time`, `memory` and `skipped` are texts of StepParts (step_parts.hpp); an
// empty text is omitted. Throws UsageError, which contains `name`, if `text` is not a report.
std::string render_report(std::string_view text, const std::string& name, const std::string& step_time = {},
                          const std::string& memory = {}, const std::string& skipped = {});

}  // namespace ddprun
