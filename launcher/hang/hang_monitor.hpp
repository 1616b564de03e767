// The system side of HangState (launcher/hang/hang_state.hpp). It owns the timer and the tool that reads stacks, and it reads
// the state of processes. It carries out HangState's actions when a round seems to hang. The agent (agent_shell.cpp) reports
// progress to the monitor, and passes the monitor's findings to AgentState. It stops the monitor at the end of the round. The
// monitor makes no decisions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/hang/hang_state.hpp"
#include "launcher/hang/stack_tool.hpp"

namespace ddprun {

class HangMonitor {
 public:
  struct Agent {
    // The monitor calls this before the other functions of this class. Returns true if a lack of progress matters at the
    // moment.
    virtual bool progress_matters() const = 0;
    virtual std::vector<pid_t> worker_pids() const = 0;  // pids by local rank; 0: not running
    virtual void query_position(int rank) = 0;           // sends PositionRequest
    // Returns the total size of the files that scripts write directly; growth counts as progress. Returns nullopt while the
    // size is unknown.
    virtual std::optional<std::uintmax_t> bytes_in_files() const = 0;
    // Finds the tool that reads stacks. Returns nullopt while the folders in PATH do not respond.
    virtual std::optional<StackTool> find_tool(bool python) = 0;
    virtual void report_hang(std::vector<HangFinding> findings) = 0;

   protected:
    ~Agent() = default;
  };
  using Round = HangState::Round;

  HangMonitor(boost::asio::io_context& io, HangSettings settings, Agent& agent);

  void begin_round(const Round& round) { carry_out(state_.begin_round(round, Clock::now())); }
  void on_message(int rank, const channel::FromWorker& message) { carry_out(state_.on_message(rank, message, Clock::now())); }
  void printed(int rank) { state_.printed(rank, Clock::now()); }
  // Call this when the workers were delayed by something that is not a hang, such as a slow log file, and now continue.
  void resumed() { state_.resumed(Clock::now()); }
  void gone(int rank) { carry_out(state_.gone(rank, Clock::now())); }
  void end_round() { carry_out(state_.end_round()); }

 private:
  using Clock = std::chrono::steady_clock;
  HangView read_view() const;
  void carry_out(const HangState::Actions& actions);
  void carry_out(const hang_action::SetTimer& action);
  void carry_out(const hang_action::CancelTimer&);
  void carry_out(const hang_action::QueryPosition& action) { agent_.query_position(action.rank); }
  void carry_out(const hang_action::ReadStack& action);
  void carry_out(const hang_action::StopReading&) { stack_run_.reset(); }
  void carry_out(const hang_action::ReportHang& action);

  boost::asio::io_context& io_;
  const bool python_;
  Agent& agent_;
  HangState state_;
  boost::asio::steady_timer timer_;
  std::uint64_t timer_number_ = 0;  // number of the newest timer; handlers of older timers are ignored
  std::optional<StackTool> tool_;
  std::unique_ptr<StackRun> stack_run_;
};

}  // namespace ddprun
