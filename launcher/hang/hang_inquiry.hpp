// The system side of HangState (launcher/decide/hang_state.hpp). It owns the timer and the tool that reads stacks, and it reads
// the state of processes. It carries out HangState's actions when a round seems to hang. The agent (agent_shell.cpp) reports
// progress to it, feeds its findings to AgentState, and ends it with the round. It makes no decisions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/decide/hang_state.hpp"
#include "launcher/hang/stack_tool.hpp"

namespace ddprun {

class HangInquiry {
 public:
  struct Hooks {
    // True if a lack of progress matters now. Called first, before any other step.
    std::function<bool()> matters;
    std::function<std::vector<pid_t>()> workers;  // by local rank; 0: not running
    std::function<void(int rank)> ask;            // sends PositionRequest
    // Only for scripts: the size of output that they write to files directly, to see whether it grows. nullopt while it is
    // unknown.
    std::function<std::optional<std::uintmax_t>()> bytes_in_files;
    std::function<void(std::vector<HangFinding>)> found;
    // Finds the tool that reads stacks. nullopt while the folders in PATH do not respond. Unset: find_stack_tool() is called
    // directly.
    std::function<std::optional<StackTool>(bool python)> find_tool{};
  };
  using Round = HangState::Round;

  HangInquiry(boost::asio::io_context& io, HangSettings settings, Hooks hooks);

  void begin_round(const Round& round) { carry_out(state_.begin_round(round, Clock::now())); }
  void heard(int rank, const channel::FromWorker& message) { carry_out(state_.heard(rank, message, Clock::now())); }
  void printed(int rank) { state_.printed(rank, Clock::now()); }
  // The workers were delayed by something outside of them, and now continue.
  void goes_on() { state_.goes_on(Clock::now()); }
  void gone(int rank) { carry_out(state_.gone(rank, Clock::now())); }
  void end_round() { carry_out(state_.end_round()); }

 private:
  using Clock = std::chrono::steady_clock;
  HangView look() const;
  void carry_out(const HangState::Actions& actions);
  void carry_out(const hang_action::SetTimer& action);
  void carry_out(const hang_action::CancelTimer&);
  void carry_out(const hang_action::Ask& action) { hooks_.ask(action.rank); }
  void carry_out(const hang_action::ReadStack& action);
  void carry_out(const hang_action::StopReading&) { stack_run_.reset(); }
  void carry_out(const hang_action::Tell& action);

  boost::asio::io_context& io_;
  const bool python_;
  Hooks hooks_;
  HangState state_;
  boost::asio::steady_timer timer_;
  std::uint64_t timer_number_ = 0;  // number of the newest timer: the handler of an older one may already be queued
  std::optional<StackTool> tool_;
  std::unique_ptr<StackRun> stack_run_;
};

}  // namespace ddprun
