// Notices that workers ended with exit code 0 while others of this node run on: usual for a moment at the end of a job, and
// otherwise a program that left a collective to the others, who may wait for it. Said once a round, after a while. Part of the
// agent's shell; one thread.
#pragma once

#include <chrono>
#include <functional>
#include <set>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace ddprun {

class EarlyEnd {
 public:
  struct Hooks {
    std::function<bool()> at_work;  // nobody has been told to stop
    // By local rank: who has ended that way, and who runs. Both have at least one.
    std::function<void(double seconds, std::vector<int> ended, std::vector<int> running)> noticed;
  };
  // `after`: how long the first of them has ended when it is said.
  EarlyEnd(boost::asio::io_context& io, Hooks hooks, std::chrono::milliseconds after = std::chrono::seconds(10))
      : timer_(io), after_(after), hooks_(std::move(hooks)) {}

  void begin_round(int workers);
  // That worker is gone, of its own accord; `well`: with exit code 0.
  void ended(int rank, bool well);

 private:
  void look();

  boost::asio::steady_timer timer_;
  std::chrono::milliseconds after_;
  Hooks hooks_;
  std::set<int> running_;
  std::vector<int> ended_well_;
};

}  // namespace ddprun
