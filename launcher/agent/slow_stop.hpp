// Monitors workers that were ordered to stop but do not exit. After 10 s it reports which workers still run, and their state in
// the kernel. If a process still exists 60 s after SIGKILL, it reports that the process cannot be killed. Without this report,
// a worker in state D (a dead network file system, a hung driver) would block the job without any message.
//
// The class also repeats a SIGINT that was sent while a worker was starting: while Python imports its own modules, it ignores
// SIGINT. The class is part of the agent's shell and runs on one thread.
#pragma once

#include <chrono>
#include <deque>
#include <vector>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/agent_state/agent_event.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {

class SlowStop {
 public:
  struct Limits {
    std::chrono::milliseconds slow{10'000};  // time from the first order to stop until the report of the workers that still run
    std::chrono::milliseconds unkillable{60'000};  // time from SIGKILL until a process is reported as unkillable
    std::chrono::milliseconds starting{2'000};     // a SIGINT within this time after a round's start may be lost
    std::chrono::milliseconds repeat{1'000};       // time after which a SIGINT that may be lost is sent again
  };
  struct Agent {
    virtual std::vector<pid_t> worker_pids() const = 0;  // returns pids, indexed by local rank; 0: the process has ended
    // SlowStop calls this at most once per round.
    virtual void report_slow_stop(double seconds, std::vector<StopIsSlow::Awaited> awaited) = 0;
    virtual void feed(const AgentEvent& event) = 0;  // `event` is always WorkerStuck; called at most once per process
    virtual void interrupt(int rank) = 0;            // sends SIGINT; called at most once per round and rank

   protected:
    ~Agent() = default;
  };
  SlowStop(boost::asio::io_context& io, Limits limits, Agent& agent);

  void begin_round();
  // Call this when the agent starts to stop the workers. Only the first call in a round has an effect.
  void stops();
  // Call this after SIGINT was sent to workers with Python's default handling of SIGINT.
  void interrupted();
  // Call this after SIGKILL was sent to the workers of these ranks.
  void killed(const std::vector<int>& ranks);

 private:
  struct Killed {
    int rank = 0;
    pid_t pid = 0;  // the rank alone is ambiguous, since a replacement process has the same rank
    std::chrono::steady_clock::time_point lost_at{};
  };
  void wait_for_killed();
  void check_killed();

  boost::asio::steady_timer slow_timer_;
  boost::asio::steady_timer kill_timer_;
  boost::asio::steady_timer repeat_timer_;
  Limits limits_;
  Agent& agent_;
  bool stopping_ = false;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::deque<Killed> killed_;  // sorted by deadline, earliest first
};

}  // namespace ddprun
