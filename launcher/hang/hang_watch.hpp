// Watches whether a round still makes progress. Its input is the messages of the workers (or a script's output) with their
// times. Its output is a deadline: if no rank makes progress until then, the round counts as hanging. Ranks wait for each
// other, so one late rank makes all of them late. As long as one rank is within its time limit, the others may be waiting for
// that rank. So a round hangs when every rank has exceeded its limit. launcher/hang/hang_state.hpp finds the rank to blame. The
// code is pure: no I/O, no clock.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/base/check.hpp"
#include "common/channel/message.hpp"

namespace ddprun {

// The activity of a worker, which determines the worker's time limit. A script is always in kStep, and its output is its
// progress.
enum class Activity { kStart, kStep, kEvaluate, kSave, kEnd };
inline constexpr std::size_t kActivities = 5;
inline constexpr std::array<const char*, kActivities> kActivityNames{"start", "step", "evaluate", "save", "end"};

// The time limit of each activity. If the user does not set a limit, it is learned from the run: ten times the longest time
// that any rank has taken for the activity. A learned limit is at least one minute, and for a save at least ten minutes. Before
// the first such time is known, the limit is ten minutes.
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

  // kUnobserved means that ranks on other nodes may save or evaluate while the ranks of this node wait. This node gets no
  // messages from those ranks.
  enum class Others { kNone, kUnobserved };
  void begin_round(int workers, Activity first, Others others, Time now);
  // Call this when the rank starts the activity `next`. Calls for ranks that are not watched are ignored.
  void entered(int rank, Activity next, Time now);
  // Call this when the rank has finished a part of its activity, such as one step, and continues.
  void stepped(int rank, Time now);
  // Call this when a checkpoint was written, in the background or not. `time` is the duration of the save.
  void on_checkpoint_written(Duration time);
  void gone(int rank);
  // Restarts the time measurement of all ranks and learns no limit from the elapsed time. Call this, for example, after this
  // process was suspended and could not receive messages.
  void forgive(Time now);

  // Returns the time at which the round counts as hanging if no rank makes progress until then. Returns nullopt if no rank is
  // watched.
  std::optional<Time> deadline() const;

  // The time for which a rank has made no progress, and its time limit.
  struct Silence {
    Activity activity = Activity::kStep;
    Duration lasted{};
    Duration limit{};
    bool learned = false;
  };
  Silence silence_of(int rank, Time now) const;
  // Returns the longest limit that the agent of another node might use. That agent may have learned other limits from the run.
  Duration max_remote_limit() const;

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
