// Collects step times of one rank until the next report to the agent (channel::Pace). Used by the trainer
// (trainer/loop/step_pace.hpp) and by the library of the channel (sdk/channel). Pure; python/ddprun/_pace.py does the same.
#pragma once

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "common/channel/codec.hpp"
#include "common/channel/message.hpp"

namespace ddprun::channel {

// The sum over all steps of a message. nullopt if there are no steps or if a number is impossible: a script may send any
// number.
inline std::optional<StepTime> total_of(const Pace& pace) {
  constexpr std::int64_t kMostUs = 1'000'000'000'000'000, kMostSteps = 1'000'000'000;
  if (pace.times.empty()) return std::nullopt;
  StepTime total{.step = pace.times.back().step, .steps = 0};
  for (const StepTime& one : pace.times) {
    for (const std::int64_t us : {one.own_us, one.waiting_us, one.data_us})
      if (us < 0 || us > kMostUs) return std::nullopt;
    if (one.step < 0 || one.steps < 1 || one.steps > kMostSteps) return std::nullopt;
    total.steps += one.steps;
    total.own_us += one.own_us;
    total.waiting_us += one.waiting_us;
    total.data_us += one.data_us;
  }
  return total;
}

class StepTimes {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A step has finished. Returns the message to send now, if any. Steps shorter than 20 ms are combined to pieces of 100 ms:
  // over shorter times, ranks differ by noise of the system. Each message wakes the agent, so reports within a second share one
  // message. Within 200 ms, if there are five steps of 20 ms and more: a straggler is then reported within 20 such steps. If
  // the newest step is reported again, its additional time counts for the next step.
  std::optional<Pace> add(StepTime one, Time now) {
    constexpr std::int64_t kShortestUs = 20'000, kPieceUs = 100'000;
    constexpr std::chrono::milliseconds kTellEvery{200}, kTellAtLatest{1000};
    constexpr std::size_t kStepsTogether = 5;
    const auto is_short = [](const StepTime& times) {
      return times.own_us + times.waiting_us < (times.steps == 1 ? kShortestUs : kPieceUs);
    };
    const auto put_to = [](const StepTime& more, StepTime& times) {
      times.own_us += more.own_us;
      times.waiting_us += more.waiting_us;
      times.data_us += more.data_us;
    };
    if (one.step == newest_step_) {
      put_to(one, of_next_step_);
      return std::nullopt;
    }
    newest_step_ = one.step;
    put_to(std::exchange(of_next_step_, {}), one);
    if (!times_.empty() && is_short(times_.back())) {
      StepTime& newest = times_.back();
      newest.step = one.step;
      newest.steps += one.steps;
      put_to(one, newest);
    } else {
      times_.push_back(one);
    }
    if (is_short(times_.back())) return std::nullopt;
    const bool are_steps = times_.back().steps == 1 && times_.size() >= kStepsTogether;
    if (now - told_ < (are_steps ? kTellEvery : kTellAtLatest) && times_.size() < kMaxStepTimes) return std::nullopt;
    told_ = now;
    return Pace{std::exchange(times_, {})};
  }

 private:
  std::vector<StepTime> times_;
  std::int64_t newest_step_ = -1;
  StepTime of_next_step_{};
  Time told_{};
};

}  // namespace ddprun::channel
