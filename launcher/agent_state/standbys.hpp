// Manages processes that wait to become workers: standbys of ddptrain (--standby) and spare interpreters of scripts. The code
// is pure: no I/O, no clock. AgentState uses it.
//
// A standby of ddptrain has already loaded the model and the data. So it can replace a lost worker without the delay of a new
// process. Standbys start after the first finished step of a round or regroup, since their loading would delay this step. They
// are killed at the end of the round. If a standby exits, the job does not fail.
//
// A spare interpreter has already imported a script's libraries. After a failure all workers of a script start again, and ready
// spares become these workers. Only a limited number of spares load at the same time, so that they do not slow down the job.
// Spares are used only when they are ready, and they survive the end of a round. Used spares are replaced when the script of
// the next round runs.
//
//     started -> ready -> taken: it is the worker of a rank, and its number stays in use until this worker exits
//             -> gone: it exited while it waited, and the next one starts after a pause
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
#include "launcher/agent_state/round_workers.hpp"

namespace ddprun {

// Records which numbers of standbys or spares are in use, and which one becomes a worker next. Computes the pause after one
// has exited by itself.
class Standbys {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kFirstPause{1000};
  static constexpr std::chrono::milliseconds kMaxPause{60000};

  static constexpr int kAll = std::numeric_limits<int>::max();

  // `first` is the lowest number of a standby, since lower numbers are local ranks. At most `max_loading` standbys load at the
  // same time.
  Standbys(int wanted, int first, int max_loading = kAll) : wanted_(wanted), first_(first), max_loading_(max_loading) {}

  bool wanted() const { return wanted_ > 0; }
  bool any() const { return !waiting_.empty(); }

  // Returns the numbers of the standbys that the caller must start now. The list is empty during a pause.
  std::vector<int> start_missing(Clock::time_point now) {
    std::vector<int> started;
    while (static_cast<int>(waiting_.size()) < wanted_ && now >= not_before_ && loading() < max_loading_) {
      const int number = free_number();
      waiting_[number] = {.started = ++starts_};
      started.push_back(number);
    }
    return started;
  }

  // Returns the remaining time of the pause in which no standby is started; 0 if there is no pause.
  std::chrono::milliseconds pause(Clock::time_point now) const {
    return wanted() && now < not_before_ ? std::chrono::ceil<std::chrono::milliseconds>(not_before_ - now)
                                         : std::chrono::milliseconds{};
  }

  void ready(int number, Clock::time_point now) {
    if (const auto found = waiting_.find(number); found != waiting_.end()) found->second.ready_since = now;
  }

  // Chooses the standby that becomes a worker: the first ready one, or else the first one that is still loading, because a new
  // process would be ready even later.
  std::optional<int> take() {
    const auto chosen = std::min_element(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) {
      return std::pair(!a.second.ready_since, a.second.started) < std::pair(!b.second.ready_since, b.second.started);
    });
    if (chosen == waiting_.end()) return std::nullopt;
    const int number = chosen->first;
    if (chosen->second.ready_since) failures_ = 0;
    waiting_.erase(chosen);
    check(taken_.insert(number).second, "expected a different number for each standby process, found the same number twice");
    return number;
  }
  // Chooses a ready standby. Returns nullopt if all waiting standbys are still loading.
  std::optional<int> take_ready() {
    const bool any_ready =
        std::any_of(waiting_.begin(), waiting_.end(), [](const auto& one) { return one.second.ready_since.has_value(); });
    return any_ready ? take() : std::nullopt;
  }
  // Call this when the worker that this standby became has exited. Its number can then be used again.
  void release(int number) { taken_.erase(number); }

  // Call this when a standby exited while it waited. Returns the pause before the next one is started. The pause doubles each
  // time, until a standby has waited for kMaxPause or has become a worker. Returns nullopt if no waiting standby has this
  // number.
  std::optional<std::chrono::milliseconds> gone(int number, Clock::time_point now) {
    const auto found = waiting_.find(number);
    if (found == waiting_.end()) return std::nullopt;
    const auto& ready_since = found->second.ready_since;
    if (ready_since && now - *ready_since >= kMaxPause) failures_ = 0;
    waiting_.erase(found);
    std::chrono::milliseconds pause = kFirstPause;
    for (int i = 0; i < failures_ && pause < kMaxPause; ++i) pause *= 2;
    ++failures_;
    pause = std::min(pause, kMaxPause);
    not_before_ = now + pause;
    return pause;
  }

  // After this call no standby is started, because none can succeed. Standbys that already wait remain usable.
  void give_up() { wanted_ = 0; }

  // Call this when all processes of the round have exited. A pause that has started continues.
  void clear() {
    waiting_.clear();
    taken_.clear();
  }

 private:
  struct Waiting {
    int started = 0;  // position in the order of starts
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
  int max_loading_;
  int starts_ = 0;
  int failures_ = 0;  // number of consecutive standbys that exited while they waited
  Clock::time_point not_before_ = Clock::time_point::min();
  std::map<int, Waiting> waiting_;
  std::set<int> taken_;
};

// Emits the actions that start, use and dismiss the standbys or spares of a job.
class StandbyRules {
 public:
  // Time from the start of a round after which a script that prints nothing is assumed to have finished its imports.
  static constexpr std::chrono::milliseconds kSparesAfter{10000};

  StandbyRules(const AgentSettings& settings, AgentTurn& turn)
      : spares_(settings.keeps_spares()),
        turn_(turn),
        numbers_(settings.regroup_limit.count() > 0 || spares_ ? settings.standbys : 0, settings.world_size,
                 spares_ ? settings.max_loading_spares : Standbys::kAll) {}

  // Call this when all workers of a round start. Returns the numbers of the ready spares, which become the workers of ranks 0,
  // 1, ...
  std::vector<int> begin_round(RoundWorkers& workers) {
    std::vector<int> taken;
    if (!spares_) {
      numbers_.clear();
      return taken;
    }
    for (int rank = 0; rank < workers.count(); ++rank) {
      const auto number = numbers_.take_ready();
      if (!number) break;
      workers.at(rank).standby = number;
      taken.push_back(*number);
    }
    if (numbers_.wanted()) turn_.act(agent_action::SetTimer{AgentTimer::kSpares, kSparesAfter});
    return taken;
  }

  void start_missing() {
    for (const int number : numbers_.start_missing(turn_.now.steady)) turn_.act(agent_action::StartStandby{number});
  }
  // Call this when the timer has fired. Sets the timer again if starts are still paused after the exit of a spare.
  void extend_timer() {
    const auto rest = numbers_.pause(turn_.now.steady);
    if (rest.count() > 0) turn_.act(agent_action::SetTimer{AgentTimer::kSpares, rest});
  }

  // Chooses the standby that replaces a lost worker. Returns nullopt if none waits. The rank then needs a new process.
  std::optional<int> take() { return spares_ ? std::nullopt : numbers_.take(); }
  void release(const WorkerRecord& ended) {
    if (ended.standby) numbers_.release(*ended.standby);
  }
  // Kills the standbys, since no worker of this round will be replaced. Spares keep running for the next round.
  void dismiss() {
    if (spares_ || !numbers_.any()) return;
    numbers_.clear();
    turn_.act(agent_action::DismissStandbys{});
  }

  void ready(int number) { numbers_.ready(number, turn_.now.steady); }
  void gone(const agent_event::StandbyGone& event) {
    const auto pause = numbers_.gone(event.number, turn_.now.steady);
    if (!pause) return;
    turn_.emit(StandbyEnded{.pid = event.pid,
                            .status = event.status,
                            .message = event.message,
                            .next_in_s = event.permanent ? -1 : std::chrono::duration<double>(*pause).count(),
                            .time_ns = event.time_ns});
    if (event.permanent) return numbers_.give_up();
    if (spares_) turn_.act(agent_action::SetTimer{AgentTimer::kSpares, *pause});
  }

 private:
  bool spares_;
  AgentTurn& turn_;
  Standbys numbers_;
};

}  // namespace ddprun
