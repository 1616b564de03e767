// Detects workers that exit with code 0 while other workers of this node still run. At the end of a job that is normal for a
// short time. Otherwise the program has left a collective, and the other workers may wait for it forever. Reports at most once
// per round, after a delay. Part of the agent's shell; one thread.
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
    std::function<bool()> at_work;  // false once any worker was asked to stop
    // `ended` and `running` are local ranks; neither is empty.
    std::function<void(double seconds, std::vector<int> ended, std::vector<int> running)> noticed;
  };
  // `after`: delay between the first such exit and the report.
  EarlyEnd(boost::asio::io_context& io, Hooks hooks, std::chrono::milliseconds after = std::chrono::seconds(10))
      : timer_(io), after_(after), hooks_(std::move(hooks)) {}

  void begin_round(int workers);
  // A replacement worker was started for a lost one.
  void began(int rank) { running_.insert(rank); }
  // The worker has ended without being asked to stop; `well`: with exit code 0.
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
