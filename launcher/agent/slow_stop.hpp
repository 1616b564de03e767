// Watches for workers that do not end although they were ordered to stop. After a while it reports which workers are awaited
// and their state in the kernel. Long after SIGKILL it reports a process that cannot be killed. Without it, a worker in state D
// (a dead network file system, a hung driver) would block a job forever without a message. It also repeats a SIGINT that was
// sent while a worker was starting: Python ignores a SIGINT that arrives while it imports its own modules. Part of the agent's
// shell; one thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <vector>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/decide/agent_event.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {

class SlowStop {
 public:
  struct Limits {
    std::chrono::milliseconds slow{10'000};        // from the first order to stop until the report
    std::chrono::milliseconds unkillable{60'000};  // from SIGKILL until a process counts as lost
    std::chrono::milliseconds starting{2'000};     // from a round's start: SIGINT may be lost
    std::chrono::milliseconds repeat{1'000};       // from such a SIGINT until it is repeated
  };
  struct Hooks {
    std::function<std::vector<pid_t>()> workers;                                  // by local rank; 0: it has ended
    std::function<void(double seconds, std::vector<StopIsSlow::Awaited>)> slow;   // at most once in a round
    std::function<void(const agent_event::WorkerStuck& stuck)> cannot_be_killed;  // at most once for each worker
    std::function<void(int rank)> interrupt;                                      // sends SIGINT; at most once in a round
  };
  SlowStop(boost::asio::io_context& io, Limits limits, Hooks hooks);

  void begin_round();
  // The round's workers are being stopped. Only the first call in a round counts.
  void stops();
  // SIGINT was sent to the workers, which handle it as Python does by default.
  void interrupted();
  // SIGKILL was sent to these ranks.
  void killed(const std::vector<int>& ranks);

 private:
  struct Killed {
    int rank = 0;
    pid_t pid = 0;  // distinguishes it from a replacement, which has the same rank
    std::chrono::steady_clock::time_point lost_at{};
  };
  void wait_for_the_killed();
  void look_at_the_killed();

  boost::asio::steady_timer slow_timer_;
  boost::asio::steady_timer kill_timer_;
  boost::asio::steady_timer repeat_timer_;
  Limits limits_;
  Hooks hooks_;
  bool stopping_ = false;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();  // start of the round
  std::deque<Killed> killed_;                                                         // the earliest is first
};

}  // namespace ddprun
