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

// What a worker is at, as far as its time goes. A script is in kStep all the time, and its output is its progress.
enum class Pace { kStart, kStep, kEvaluate, kSave, kEnd };
inline constexpr std::size_t kPaces = 5;
inline constexpr std::array<const char*, kPaces> kPaceNames{"start", "step", "evaluate", "save", "end"};

// A limit that is not given is learned from the run: ten times the longest that any rank has taken, one minute at least, of a
// save ten minutes at least; ten minutes before anything is known.
struct HangLimits {
  bool watch = false;
  std::array<std::optional<std::chrono::milliseconds>, kPaces> given{};
};

Pace pace_of(channel::Phase phase);

class HangWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::milliseconds;

  explicit HangWatch(HangLimits limits) : limits_(limits) {}

  // Others: ranks on other nodes may save or evaluate while those here wait, and nobody here hears of it.
  enum class Others { kNone, kUnheard };
  void begin_round(int workers, Pace first, Others others, Time now);
  // The rank is now at that pace. Of ranks that are not watched, nothing is kept.
  void entered(int rank, Pace next, Time now);
  // The rank has finished a piece of what it does, and goes on with it.
  void stepped(int rank, Time now);
  // A checkpoint was written in that time, in the background or not.
  void wrote(Duration time);
  void gone(int rank);
  // Nobody could be heard (this process was stopped itself): everyone's time begins anew, and nothing is learned.
  void forgive(Time now);

  // When the round hangs if nobody moves; nothing when nobody is watched.
  std::optional<Time> deadline() const;

  // How long the rank has been at what it does, and how long it may be.
  struct Silence {
    Pace pace = Pace::kStep;
    Duration lasted{};
    Duration limit{};
    bool learned = false;
  };
  Silence silence_of(int rank, Time now) const;
  // The longest that an agent of another node waits, which may have learned less.
  Duration longest_elsewhere() const;

 private:
  struct Worker {
    bool here = false;
    Pace pace = Pace::kStart;
    Time since{};
  };
  void learn(const Worker& mover, Time now);
  Duration limit_of(Pace pace) const;
  Duration allowed(const Worker& worker) const;
  bool watched(int rank) const { return rank >= 0 && static_cast<std::size_t>(rank) < workers_.size(); }
  Worker& worker(int rank) { return of_rank(workers_, rank); }

  HangLimits limits_;
  Others others_ = Others::kNone;
  std::vector<Worker> workers_;
  std::array<std::optional<Duration>, kPaces> longest_{};
};

}  // namespace ddprun
