// Finds out whether a round hangs and which rank is to blame, as a pure state machine. Its inputs are messages of the workers,
// the time, and the state of the worker processes. Its outputs are timers, position queries, stack reads and finally the
// findings. hang_watch.hpp has the time limits, and hang_verdict.hpp finds the culprit. launcher/hang/hang_monitor.hpp
// provides the inputs and carries out the actions.
//
//     watching -- no progress in time --> querying -- answers, or no time left --> judging -> reading stacks -> reported
//     judging -- the culprit may be on another node --> waiting -> querying
//
// If any rank makes progress before the verdict, the inquiry ends, and the state machine watches again. After the findings are
// reported, the state machine does nothing until the next round.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/hang/hang_verdict.hpp"
#include "launcher/hang/hang_watch.hpp"

namespace ddprun {

struct HangSettings {
  HangLimits limits{};
  bool channel = false;  // true: all workers can be queried; false (a script): only ranks with reported steps can be queried
  bool python = false;
  std::chrono::milliseconds answer_time{2000};  // time within which workers must answer
};

// The state of the system when the timer fires.
struct HangView {
  struct Process {
    long pid = 0;       // 0: not running
    char state = '\0';  // process state letter in /proc/PID/stat
  };
  bool matters = false;            // true if a lack of progress matters now
  std::vector<Process> workers{};  // index: local rank
  // Total size of the files that scripts write directly; growth counts as progress. nullopt while the size is unknown.
  std::optional<std::uintmax_t> bytes_in_files{0};
};

namespace hang_action {
// Sets the timer, and replaces an earlier one.
struct SetTimer {
  std::chrono::steady_clock::time_point at{};
};
struct CancelTimer {};
// Sends PositionRequest to the worker.
struct QueryPosition {
  int rank = 0;
};
// Reads the call stack of that process. The caller answers with stack_read() or cannot_read_stacks().
struct ReadStack {
  long pid = 0;
  std::chrono::milliseconds at_most{};
};
struct StopReading {};
struct ReportHang {
  struct Finding {
    int rank = 0;  // local rank
    long pid = 0;
    std::optional<std::string> blame{};  // reason why this rank is to blame; nullopt if it is not
    std::string where{};                 // first line of the evidence; the kernel's information about the process is appended
    std::vector<std::string> stack{};
  };
  std::vector<Finding> findings;
};
}  // namespace hang_action

using HangAction = std::variant<hang_action::SetTimer, hang_action::CancelTimer, hang_action::QueryPosition,
                                hang_action::ReadStack, hang_action::StopReading, hang_action::ReportHang>;

class HangState {
 public:
  using Time = HangWatch::Time;
  using Actions = std::vector<HangAction>;
  struct Round {
    int workers = 0;
    int rank_offset = 0;  // global rank of this node's first worker
    bool many_nodes = false;
  };

  explicit HangState(HangSettings settings) : settings_(settings), watch_(settings.limits) {}

  // Each function returns actions, which the caller must carry out in the returned order.
  Actions begin_round(const Round& round, Time now);
  Actions end_round();
  Actions on_message(int rank, const channel::FromWorker& message, Time now);
  Actions gone(int rank, Time now);
  Actions timer_fired(const HangView& view, Time now);
  Actions stack_read(std::vector<std::string> frames, Time now);
  Actions cannot_read_stacks();

  void printed(int rank, Time now);
  // Call this when the workers were delayed by something that is not a hang, such as a slow log file, and now continue.
  void resumed(Time now) { watch_.forgive(now); }

 private:
  enum class Phase { kOff, kWatching, kQuerying, kJudging, kWaiting, kReading, kReported };
  struct Suspect {
    int rank = 0;  // local rank
    long pid = 0;
    HangObservation observation;
    std::vector<std::string> stack{};
  };

  void wait_for_deadline();
  void tighten_deadline(Time now);
  void deadline_passed(const HangView& view, Time now);
  void inquire(const HangView& view, Time now);
  void check_answers(Time now);
  void judge(const HangView& view, Time now);
  void read_next_stack(Time now);
  void report_findings();
  void give_up_inquiry();
  bool moved_since(Time now) const;
  void on_script_step(int rank, std::int64_t step, Time now);
  bool can_query(int rank) const { return settings_.channel || reported_steps_.contains(rank); }
  bool is_culprit(const Suspect& suspect) const;
  std::string message_of(const HangVerdict& verdict, Time now) const;
  void set_timer(Time at);
  Actions done() { return std::exchange(actions_, {}); }

  HangSettings settings_;
  HangWatch watch_;
  Actions actions_;
  Phase phase_ = Phase::kOff;
  Round round_;
  Time timer_at_{};
  // Newest step that each rank of a script has reported in this round, by local rank. For the ranks in this map, output no
  // longer counts as progress.
  std::map<int, std::int64_t> reported_steps_;
  std::uintmax_t bytes_in_files_ = 0;
  Time last_check_{};

  // The following members belong to the current inquiry.
  std::vector<Suspect> suspects_;
  HangVerdict verdict_;
  std::string message_;
  bool second_check_ = false;
  std::vector<std::size_t> stacks_to_read_;  // indexes into suspects_; the last index is read first
  Time stacks_until_{};
};

}  // namespace ddprun
