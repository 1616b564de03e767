// Watches whether a round still makes progress. Its input is the messages of the workers (or a script's output) with their
// times. Its output is the time at which the round counts as hanging if no rank makes progress before. Ranks wait for each
// other, so one late rank makes all of them late. And a rank that still has time excuses all of them. So a round hangs when
// every rank is over its limit. Pure; launcher/decide/hang_state.hpp finds the rank to blame.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/base/check.hpp"
#include "common/channel/message.hpp"

namespace ddprun {

// The activity of a worker that decides its time limit. A script is always in kStep, and its output is its progress.
enum class Activity { kStart, kStep, kEvaluate, kSave, kEnd };
inline constexpr std::size_t kActivities = 5;
inline constexpr std::array<const char*, kActivities> kActivityNames{"start", "step", "evaluate", "save", "end"};

// A limit that is not given is learned from the run. It is ten times the longest time that any rank has taken, but at least one
// minute, and for a save at least ten minutes. Until a time is known, the limit is ten minutes.
struct HangLimits {
  bool watch = false;
  std::array<std::optional<std::chrono::milliseconds>, kActivities> given{};
};

Activity activity_of(channel::Phase phase);

class HangWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  explicit HangWatch(HangLimits limits) : limits_(limits) {}

  // kUnheard: ranks on other nodes may save or evaluate while the ranks of this node wait, and this node gets no messages of
  // them.
  enum class Others { kNone, kUnheard };
  void begin_round(int workers, Activity first, Others others, Time now);
  // The rank begins `next`. Ranks that are not watched are ignored.
  void entered(int rank, Activity next, Time now);
  // The rank has finished one piece of its activity, and continues.
  void stepped(int rank, Time now);
  // A checkpoint was written in the duration `time`, in the background or not.
  void wrote(Duration time);
  void gone(int rank);
  // No message could be received, since this process was stopped itself. All times begin again, and no limit is learned.
  void forgive(Time now);

  // Time at which the round counts as hanging if no rank makes progress before. nullopt if no rank is watched.
  std::optional<Time> deadline() const;

  // How long the rank has made no progress, and its limit.
  struct Silence {
    Activity activity = Activity::kStep;
    Duration lasted{};
    Duration limit{};
    bool learned = false;
  };
  Silence silence_of(int rank, Time now) const;
  // The longest limit that the agent of another node may use, since it may have learned less.
  Duration longest_elsewhere() const;

 private:
  struct Worker {
    bool here = false;
    Activity activity = Activity::kStart;
    Time since{};
  };
  void learn(const Worker& mover, Time now);
  Duration limit_of(Activity activity) const;
  Duration allowed(const Worker& worker) const;
  bool watched(int rank) const { return rank >= 0 && static_cast<std::size_t>(rank) < workers_.size(); }
  Worker& worker(int rank) { return of_rank(workers_, rank); }

  HangLimits limits_;
  Others others_ = Others::kNone;
  std::vector<Worker> workers_;
  std::array<std::optional<Duration>, kActivities> longest_{};
};

}  // namespace ddprun
