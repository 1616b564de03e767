// Notices workers that exited with code 0 while others of this node still run. At the end of a job that is normal for a moment.
// Otherwise the program has left a collective, and the others may wait for it. Reports once a round, after a while. Part of the
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
    std::function<bool()> at_work;  // false once any worker was told to stop
    // `ended` and `running` are local ranks; neither is empty.
    std::function<void(double seconds, std::vector<int> ended, std::vector<int> running)> noticed;
  };
  // `after` is the time from the first of these ends to the report.
  EarlyEnd(boost::asio::io_context& io, Hooks hooks, std::chrono::milliseconds after = std::chrono::seconds(10))
      : timer_(io), after_(after), hooks_(std::move(hooks)) {}

  void begin_round(int workers);
  // A worker has been started in the place of a lost one.
  void began(int rank) { running_.insert(rank); }
  // The worker has ended without being told to; `well`: with exit code 0.
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
