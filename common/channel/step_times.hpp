// Collects the step times of one rank until the next report to the agent (channel::Pace). The trainer
// (trainer/loop/step_pace.hpp) and the channel library (sdk/channel) use it. The code is pure: no I/O, no clock.
// python/ddprun/_pace.py implements the same algorithm in Python.
#pragma once

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "common/channel/codec.hpp"
#include "common/channel/message.hpp"

namespace ddprun::channel {

// Returns the sum over all steps of a message. Returns nullopt if the message has no steps, or contains an invalid number. A
// script may send any number.
inline std::optional<StepTime> total_of(const Pace& pace) {
  constexpr std::int64_t kMaxUs = 1'000'000'000'000'000, kMaxSteps = 1'000'000'000;
  if (pace.times.empty()) return std::nullopt;
  StepTime total{.step = pace.times.back().step, .steps = 0};
  for (const StepTime& one : pace.times) {
    for (const std::int64_t us : {one.own_us, one.waiting_us, one.data_us})
      if (us < 0 || us > kMaxUs) return std::nullopt;
    if (one.step < 0 || one.steps < 1 || one.steps > kMaxSteps) return std::nullopt;
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

  // Adds the times of a finished step. Returns the message to send now, or nullopt if it is too early to send a message. Three
  // rules determine when a message is sent:
  // - Steps shorter than 20 ms are combined until their sum is at least 100 ms. Over shorter times, system noise hides the
  //   differences between ranks.
  // - Each message wakes the agent, so the interval between messages is at least one second.
  // - Once this object has collected five single steps of at least 20 ms, an interval of 200 ms is enough. So the agent
  //   detects a straggler within 20 such steps.
  //
  // If the caller passes the newest step again, add() adds its time to the next step.
  std::optional<Pace> add(StepTime one, Time now) {
    constexpr std::int64_t kShortestUs = 20'000, kPieceUs = 100'000;
    constexpr std::chrono::milliseconds kSendEvery{200}, kMaxDelay{1000};
    constexpr std::size_t kStepsTogether = 5;
    const auto is_short = [](const StepTime& times) {
      return times.own_us + times.waiting_us < (times.steps == 1 ? kShortestUs : kPieceUs);
    };
    const auto add_time_to = [](const StepTime& more, StepTime& times) {
      times.own_us += more.own_us;
      times.waiting_us += more.waiting_us;
      times.data_us += more.data_us;
    };
    if (one.step == newest_step_) {
      add_time_to(one, next_step_time_);
      return std::nullopt;
    }
    newest_step_ = one.step;
    add_time_to(std::exchange(next_step_time_, {}), one);
    if (!times_.empty() && is_short(times_.back())) {
      StepTime& newest = times_.back();
      newest.step = one.step;
      newest.steps += one.steps;
      add_time_to(one, newest);
    } else {
      times_.push_back(one);
    }
    if (is_short(times_.back())) return std::nullopt;
    const bool are_steps = times_.back().steps == 1 && times_.size() >= kStepsTogether;
    if (now - sent_at_ < (are_steps ? kSendEvery : kMaxDelay) && times_.size() < kMaxStepTimes) return std::nullopt;
    sent_at_ = now;
    return Pace{std::exchange(times_, {})};
  }

 private:
  std::vector<StepTime> times_;
  std::int64_t newest_step_ = -1;
  StepTime next_step_time_{};
  Time sent_at_{};
};

}  // namespace ddprun::channel
