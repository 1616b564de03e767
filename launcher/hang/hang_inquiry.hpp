// The shell around hang_watch.hpp and hang_verdict.hpp. It owns the timer. When a round seems to hang, it asks the workers
// where they are, looks at their processes, has their stacks taken, and reports which ranks are to blame. The agent
// (agent_shell.cpp) reports progress to it, gives its result to AgentState, and destroys it with the round.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/hang/stack_tool.hpp"
#include "launcher/verdict/hang_verdict.hpp"
#include "launcher/verdict/hang_watch.hpp"

namespace ddprun {

struct HangSettings {
  HangLimits limits{};
  bool channel = false;  // the workers can be asked; of a script's, only those that have reported steps
  bool python = false;
  std::chrono::milliseconds answer_time{2000};  // how long workers have for an answer
};

class HangInquiry {
 public:
  struct Subject {
    int rank = 0;
    long pid = 0;
  };
  struct Hooks {
    // Whether a lack of progress matters now. Asked before anything else is done.
    std::function<bool()> matters;
    std::function<std::vector<pid_t>()> workers;  // by local rank; 0: not running
    std::function<void(int rank)> ask;            // sends PositionRequest
    // The size of output that scripts write to files directly, to see whether it grows; nothing while it is not known. Only for
    // scripts.
    std::function<std::optional<std::uintmax_t>()> bytes_in_files;
    std::function<void(std::vector<HangFinding>)> found;
    // Finds the tool that reads stacks; nothing while the folders on PATH do not answer. Unset: find_stack_tool() is called
    // here.
    std::function<std::optional<StackTool>(bool python)> find_tool{};
  };

  HangInquiry(boost::asio::io_context& io, HangSettings settings, Hooks hooks);

  struct Round {
    int workers = 0;
    int rank_offset = 0;  // the global rank of the first worker here
    bool many_nodes = false;
  };
  void begin_round(const Round& round);
  void heard(int rank, const channel::FromWorker& message);
  void printed(int rank);
  // The workers had to wait for something that was not their fault, and now continue.
  void goes_on() { watch_.forgive(Clock::now()); }
  void gone(int rank);
  void end_round();

 private:
  using Clock = std::chrono::steady_clock;
  void wait_for_deadline();
  void deadline_may_be_sooner();
  void on_deadline(Clock::time_point deadline);
  void inquire();
  void answers_may_be_in();
  void judge();
  void take_stacks();
  void take_next_stack();
  void tell();
  bool moved_since() const;
  void stepped_of_script(int rank, std::int64_t step);
  bool can_be_asked(int rank) const { return settings_.channel || steps_told_.contains(rank); }
  void give_up_inquiry();
  std::string message_of(const HangVerdict& verdict) const;

  boost::asio::io_context& io_;
  HangSettings settings_;
  Hooks hooks_;
  HangWatch watch_;
  boost::asio::steady_timer timer_;
  Round round_;
  // The newest steps that a script's ranks have reported in this round, by local rank. For these ranks output is no progress
  // any more.
  std::map<int, std::int64_t> steps_told_;
  std::uintmax_t bytes_in_files_ = 0;
  Clock::time_point last_look_{};

  // Belongs to the current inquiry.
  struct Suspect {
    Subject subject;
    HangObservation observation;
    std::vector<std::string> stack{};
  };
  std::vector<Suspect> suspects_;
  HangVerdict verdict_;
  std::string message_;
  bool asking_ = false;
  bool to_judge_ = false;  // the workers were asked, and no verdict is found yet
  bool second_look_ = false;
  std::optional<StackTool> tool_;
  std::vector<std::size_t> stacks_to_take_;  // the last one is taken next
  Clock::time_point stacks_until_{};
  std::unique_ptr<StackRun> stack_run_;
};

}  // namespace ddprun
