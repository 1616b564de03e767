// The document of report.json, to which each event of a run adds its data. Report (report.hpp) owns the document and writes
// its text to the file. The document is stored as JSON instead of structs, so that unknown fields of an earlier invocation are
// preserved. The code is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/events/run_event.hpp"
#include "launcher/report/report_metrics.hpp"
#include "launcher/report/report_rounds.hpp"
#include "launcher/report/time_account.hpp"

namespace ddprun {

inline constexpr int kReportVersion = 1;

// The start of a Slurm job in which the agent runs.
struct SlurmStart {
  std::string job;   // id of the job: "17", or "17_3" for a task of a job array
  int restarts = 0;  // SLURM_RESTART_COUNT: number of times that Slurm has requeued the job
};

struct ReportFacts {
  std::string title;
  std::string run_dir;               // empty for a script that has no run directory
  std::vector<std::string> command;  // the argv of a worker
  int restart_budget = 0;
  bool refilled_by_progress = false;
  bool synced = true;  // true: the last text is written with fsync; false for a script, whose directory is temporary
  // kUnlessSuccessful means that the report is in a temporary directory, which is removed after a success. The last text is
  // then not written.
  enum class Kept { kAlways, kUnlessSuccessful } kept = Kept::kAlways;
  // This function is called if the end of the run could not be written to the file. Report's destructor calls it, after the
  // queue has finished.
  std::function<void(const std::string& why)> unwritten{};
  std::optional<SlurmStart> slurm{};
  bool of_script = false;  // true for a script: the report then contains the script's newest metrics
};

class ReportDocument {
 public:
  // `earlier` is the text of the existing file. The new document continues it, or ignores it if it is not a report. `pid` is
  // the pid of this agent.
  ReportDocument(ReportFacts facts, std::string host, int pid, const std::optional<std::string>& earlier);

  // The time at which the file must contain an event's change. kNow: immediately. kDeferred: a short time later. kLater: a
  // short time later, but only if the agent is still running then. kLast: immediately, and no other text follows.
  enum class Write { kNo, kNow, kDeferred, kLater, kLast };
  // Adds the event to the document. TimeAccount::on() explains the two times.
  Write on(const RunEvent& event, std::int64_t clock_was_set_ns, std::int64_t latest_ns);
  std::string text();
  // Returns the document of a running job on one line, without '\n'. Its times include the time since the newest event.
  std::string line(std::int64_t time_ns, std::int64_t clock_was_set_ns);

  const ReportFacts& facts() const { return facts_; }
  bool earlier_is_damaged() const { return earlier_ == Earlier::kDamaged; }
  std::string earlier_problem() const;  // a message if the earlier report does not contain the end of its run; "" if it does

 private:
  enum class Earlier { kNone, kWhole, kUnfinished, kDamaged };

  void continue_from(ReportJson earlier);
  ReportJson& round();
  ReportJson& invocation();
  bool has_round();
  void set_time(const TimeAccount::Seconds& seconds);
  int invocation_number() const { return static_cast<int>(document_["invocations"].size()) - 1; }

  void add(const RunStarted& event);
  void add(const RoundStarted& event);
  void add(const NodesChanged& event);
  void add(const CutOff& event);
  void add(const WorkerStarted& event);
  void add(const WorkerReported& event);
  void add(const WorkerEnded& event);
  void add(const RoundFailed& event);
  void add(const Regrouped& event);
  void add(const RegroupFailed& event);
  void add(const StandbyEnded& event);
  void add(const StopRequested& event);
  void add(const StopIsSlow& event);
  void add(const WorkersLeft& event);
  void add(const LeftoversFound& event);
  void add(const Straggler& event);
  void add(const HelperIgnored& event);
  void add(const InputWasRead& event);
  void add(const RunDirectoryRemoved& event);
  void add(const RunEnded& event);
  void note(const channel::Progress& progress);
  void note(const channel::EvalResult& evaluation);
  void note(const channel::CheckpointPublished& published);
  void note_first_step_of_round();
  void count_lost_steps(std::int64_t resumes_at);
  void count_failure(const char* cause);
  void close_round();
  void set_in_round(const char* name, ReportJson value);
  void append_in_round(const char* name, ReportJson one);
  bool succeeded(const RunEnded& event);  // true if the job succeeded in its first round

  ReportFacts facts_;
  std::string host_;
  int pid_;
  Earlier earlier_ = Earlier::kNone;
  ReportJson document_;
  std::int64_t restarts_before_ = 0;
  TimeAccount account_;
  ReportRounds rounds_text_;
  Write needed_ = Write::kNo;
};

}  // namespace ddprun
