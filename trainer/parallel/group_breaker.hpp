// Breaks the group that this process is in, from another thread than the one that waits in it: every collective, also between
// two ranks that both live, fails at once with "Connection closed by peer". Gloo has no abort of its own; it takes a closed
// connection for a lost peer. recovery.hpp calls it when the agent orders a regroup.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>

namespace ddprun::trainer {

class GroupBreaker {
 public:
  // The sockets that are there now are nobody's business: made before the first group.
  GroupBreaker();
  ~GroupBreaker() { mend(); }
  GroupBreaker(const GroupBreaker&) = delete;
  GroupBreaker& operator=(const GroupBreaker&) = delete;

  // From here until mend() no connection of a group lives, nor one that is being made.
  void break_group();
  // The old group is gone; the next may be made.
  void mend();

 private:
  void shut_connections() const;

  std::set<std::uint64_t> others_;  // cookies
  std::mutex mutex_;
  std::condition_variable_any mended_;
  std::jthread thread_;
};

}  // namespace ddprun::trainer
