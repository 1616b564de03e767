// Detects workers that exit with code 0 while other workers of this node are still running. At the end of a job this is normal
// for a few seconds. At any other time the others may be waiting without a limit in a collective that the exited worker never
// joins. After a delay the class reports this to the agent, at most once per round. It is part of the agent's shell and runs on
// one thread.
#pragma once

#include <chrono>
#include <set>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace ddprun {

class EarlyEnd {
 public:
  struct Agent {
    virtual bool at_work() const = 0;  // false after any worker was ordered to stop
    // `seconds` is the time since the first worker exited with code 0. `ended` and `running` are local ranks; neither list is
    // empty.
    virtual void report_early_end(double seconds, std::vector<int> ended, std::vector<int> running) = 0;

   protected:
    ~Agent() = default;
  };
  // `after` is the time from the first exit with code 0 to the report.
  EarlyEnd(boost::asio::io_context& io, Agent& agent, std::chrono::milliseconds after = std::chrono::seconds(10))
      : timer_(io), after_(after), agent_(agent) {}

  void begin_round(int workers);
  // Call this when a replacement for a lost worker was started.
  void started(int rank) { running_.insert(rank); }
  // Call this when a worker that was not ordered to stop has ended. `ok` is true if its exit code was 0.
  void ended(int rank, bool ok);

 private:
  void check_workers();

  boost::asio::steady_timer timer_;
  std::chrono::milliseconds after_;
  Agent& agent_;
  std::set<int> running_;
  std::vector<int> ended_well_;
};

}  // namespace ddprun
