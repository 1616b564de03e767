// Bookkeeping of the standby workers of ddprun --standby. These processes have loaded everything and wait, so that a lost
// worker is replaced without a start. The class assigns their numbers, chooses the next one to take over, and sets the pause
// after a standby that ended by itself. Pure; AgentState (agent_state.cpp) uses it. The spare interpreters of scripts use the
// same class. Only a limited number of spares load at the same time, so that they do not slow down the job. Spares are taken
// only when they are ready, and they outlive the rounds.
//
//     started -> ready -> taken: it is the worker of a rank, and its number is in use until that worker ends
//             -> gone: it ended while it waited, and the next one is started after a pause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/base/check.hpp"

namespace ddprun {

class Standbys {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kFirstPause{1000};
  static constexpr std::chrono::milliseconds kLongestPause{60000};

  static constexpr int kAll = std::numeric_limits<int>::max();

  // Numbers begin with `first`; lower numbers are those of ranks. At most `at_once` load at the same time.
  Standbys(int wanted, int first, int at_once = kAll) : wanted_(wanted), first_(first), at_once_(at_once) {}

  bool wanted() const { return wanted_ > 0; }
  bool any() const { return !waiting_.empty(); }

  // Returns the numbers of the missing standbys, which the caller must start. Empty during a pause.
  std::vector<int> start_missing(Clock::time_point now) {
    std::vector<int> started;
    while (static_cast<int>(waiting_.size()) < wanted_ && now >= not_before_ && loading() < at_once_) {
      const int number = free_number();
      waiting_[number] = {.started = ++starts_};
      started.push_back(number);
    }
    return started;
  }

  // Rest of the pause in which no standby is started; 0 if there is no pause.
  std::chrono::milliseconds pause(Clock::time_point now) const {
    return wanted() && now < not_before_ ? std::chrono::ceil<std::chrono::milliseconds>(not_before_ - now)
                                         : std::chrono::milliseconds{};
  }

  void ready(int number, Clock::time_point now) {
    if (const auto found = waiting_.find(number); found != waiting_.end()) found->second.ready_since = now;
  }

  // Takes a standby to become a worker: the ready one that started first. If none is ready, a loading one is taken, since it is
  // ahead of a new process.
  std::optional<int> take() {
    const auto chosen = std::min_element(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) {
      return std::pair(!a.second.ready_since, a.second.started) < std::pair(!b.second.ready_since, b.second.started);
    });
    if (chosen == waiting_.end()) return std::nullopt;
    const int number = chosen->first;
    if (chosen->second.ready_since) failures_ = 0;
    waiting_.erase(chosen);
    check(taken_.insert(number).second, "two standbys go by one number");
    return number;
  }
  // Takes a ready standby, for a worker that should not wait for a loading one.
  std::optional<int> take_ready() {
    const bool any_ready =
        std::any_of(waiting_.begin(), waiting_.end(), [](const auto& one) { return one.second.ready_since.has_value(); });
    return any_ready ? take() : std::nullopt;
  }
  // The worker that the standby had become has ended.
  void release(int number) { taken_.erase(number); }

  // The standby ended while it waited. Returns the pause that follows: it doubles until a standby has waited for the longest
  // pause or has been used. nullopt: no waiting standby has that number.
  std::optional<std::chrono::milliseconds> gone(int number, Clock::time_point now) {
    const auto found = waiting_.find(number);
    if (found == waiting_.end()) return std::nullopt;
    const auto& ready_since = found->second.ready_since;
    if (ready_since && now - *ready_since >= kLongestPause) failures_ = 0;
    waiting_.erase(found);
    std::chrono::milliseconds pause = kFirstPause;
    for (int i = 0; i < failures_ && pause < kLongestPause; ++i) pause *= 2;
    ++failures_;
    pause = std::min(pause, kLongestPause);
    not_before_ = now + pause;
    return pause;
  }

  // No standby is started any more, since none can succeed. Waiting ones stay.
  void give_up() { wanted_ = 0; }

  // All processes of the round have ended. A pause continues.
  void clear() {
    waiting_.clear();
    taken_.clear();
  }

 private:
  struct Waiting {
    int started = 0;  // the order in which standbys were started
    std::optional<Clock::time_point> ready_since{};
  };

  std::ptrdiff_t loading() const {
    return std::count_if(waiting_.begin(), waiting_.end(), [](const auto& one) { return !one.second.ready_since; });
  }

  int free_number() const {
    int number = first_;
    while (waiting_.contains(number) || taken_.contains(number)) ++number;
    return number;
  }

  int wanted_;
  int first_;
  int at_once_;
  int starts_ = 0;
  int failures_ = 0;  // in a row
  Clock::time_point not_before_ = Clock::time_point::min();
  std::map<int, Waiting> waiting_;
  std::set<int> taken_;
};

}  // namespace ddprun
