#include "launcher/hang/hang_watch.hpp"

#include <algorithm>

#include "common/base/check.hpp"

namespace ddprun {
namespace {

constexpr HangWatch::Duration kDefaultLimit = std::chrono::minutes(10);
constexpr HangWatch::Duration kMinLearnedLimit = std::chrono::minutes(1);
constexpr int kLongestFactor = 10;
// A disk may stall for a long time even if every earlier save took milliseconds. Killing the process that waits for the disk
// does not help, since the data that it writes would be lost.
constexpr HangWatch::Duration kMinSaveLimit = std::chrono::minutes(10);

std::size_t activity_index(Activity activity) {
  return static_cast<std::size_t>(activity);
}

}  // namespace

Activity activity_of(channel::Phase phase) {
  switch (phase) {
    case channel::Phase::kStarting:
    case channel::Phase::kJoining:
      return Activity::kStart;
    case channel::Phase::kRunning:
      return Activity::kStep;
    case channel::Phase::kSaving:
      return Activity::kSave;
    case channel::Phase::kEvaluating:
      return Activity::kEvaluate;
    case channel::Phase::kDone:
      return Activity::kEnd;
  }
  check_failed("unknown phase of a worker");
}

void HangWatch::begin_round(int workers, Activity first, Others others, Time now) {
  others_ = others;
  workers_.assign(static_cast<std::size_t>(workers), Worker{.here = limits_.watch, .activity = first, .since = now});
}

// The duration of the previous activity may change its learned time limit, but only if the activity was finished. A step that
// an evaluation or a save has interrupted is ignored. The phases of the start are ignored, since the time to load a library
// does not predict the time to load data. The time in phase kSaving is ignored too, because a background save only copies data
// in this phase. on_checkpoint_written() receives the time of the whole save.
void HangWatch::entered(int rank, Activity next, Time now) {
  if (!watched(rank)) return;
  Worker& mover = worker(rank);
  if (mover.activity != next && mover.activity != Activity::kStep && mover.activity != Activity::kSave) learn(mover, now);
  mover.activity = next;
  mover.since = now;
}

void HangWatch::stepped(int rank, Time now) {
  if (!watched(rank)) return;
  Worker& mover = worker(rank);
  learn(mover, now);
  mover.since = now;
}

void HangWatch::learn(const Worker& mover, Time now) {
  auto& longest = longest_[activity_index(mover.activity)];
  longest = std::max(longest.value_or(Duration{}), std::chrono::duration_cast<Duration>(now - mover.since));
}

void HangWatch::on_checkpoint_written(Duration time) {
  auto& longest = longest_[activity_index(Activity::kSave)];
  longest = std::max(longest.value_or(Duration{}), time);
}

void HangWatch::gone(int rank) {
  if (watched(rank)) worker(rank).here = false;
}

void HangWatch::forgive(Time now) {
  for (Worker& worker : workers_) worker.since = now;
}

std::optional<HangWatch::Time> HangWatch::deadline() const {
  std::optional<Time> latest;
  for (const Worker& worker : workers_) {
    if (!worker.here) continue;
    const Time over = worker.since + allowed(worker);
    if (!latest || over > *latest) latest = over;
  }
  return latest;
}

HangWatch::Silence HangWatch::silence_of(int rank, Time now) const {
  const Worker& silent = of_rank(workers_, rank);
  return {.activity = silent.activity,
          .lasted = std::chrono::duration_cast<Duration>(now - silent.since),
          .limit = allowed(silent),
          .learned = !limits_.given[activity_index(silent.activity)]};
}

HangWatch::Duration HangWatch::max_remote_limit() const {
  Duration longest{};
  for (const Activity activity : {Activity::kStep, Activity::kEvaluate, Activity::kSave}) {
    const Duration there =
        limits_.given[activity_index(activity)] ? limit_of(activity) : std::max(limit_of(activity), kDefaultLimit);
    longest = std::max(longest, there);
  }
  return longest;
}

HangWatch::Duration HangWatch::limit_of(Activity activity) const {
  if (const auto& given = limits_.given[activity_index(activity)]) return *given;
  const auto& longest = longest_[activity_index(activity)];
  const Duration shortest = activity == Activity::kSave ? kMinSaveLimit : kMinLearnedLimit;
  return longest ? std::max(shortest, *longest * kLongestFactor) : kDefaultLimit;
}

HangWatch::Duration HangWatch::allowed(const Worker& worker) const {
  if (others_ == Others::kNone || worker.activity == Activity::kStart) return limit_of(worker.activity);
  return std::max({limit_of(worker.activity), limit_of(Activity::kSave), limit_of(Activity::kEvaluate)});
}

}  // namespace ddprun
