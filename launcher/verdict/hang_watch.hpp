// Whether a round still makes progress: a worker's messages (or a script's output) come in with their time, and out comes when
// the round counts as hanging unless somebody moves before. Ranks wait for each other, so one that is late makes all of them
// late, and one that still has time excuses all of them: a round hangs when every rank is over its limit. Pure;
// launcher/decide/hang_state.hpp looks for the one that is to blame.
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

// A limit that is not given is learned from the run: ten times the longest time that any rank has taken, at least one minute,
// for a save at least ten minutes. Until anything is known it is ten minutes.
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

  // kUnheard: ranks on other nodes may save or evaluate while the ranks here wait, and this node does not hear of it.
  enum class Others { kNone, kUnheard };
  void begin_round(int workers, Activity first, Others others, Time now);
  // The rank begins `next`. Ranks that are not watched are ignored.
  void entered(int rank, Activity next, Time now);
  // The rank has finished one piece of its activity, and continues.
  void stepped(int rank, Time now);
  // A checkpoint was written in that time, in the background or not.
  void wrote(Duration time);
  void gone(int rank);
  // No worker could be heard, since this process was stopped itself: all times begin again, and nothing is learned.
  void forgive(Time now);

  // When the round hangs if no rank makes progress before; nothing when no rank is watched.
  std::optional<Time> deadline() const;

  // For how long the rank has made no progress, and its limit.
  struct Silence {
    Activity activity = Activity::kStep;
    Duration lasted{};
    Duration limit{};
    bool learned = false;
  };
  Silence silence_of(int rank, Time now) const;
  // The longest limit that an agent of another node may have, which may have learned less.
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
