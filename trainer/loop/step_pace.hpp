// Measures the time of each step on this rank and its parts. The agent gets computing time and waiting time, and compares the
// ranks. The log shows all parts (docs/watching.md). Used by train.cpp, and without parts by custom loops (trainer/library).
// The training thread only.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "common/base/figure.hpp"
#include "common/channel/step_times.hpp"
#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {

// All other time is reported as rest: the log, a save, the loop itself.
enum class StepPart : std::uint8_t { kData, kForward, kBackward, kWaiting, kOptimizer };

class StepPace {
 public:
  using Clock = std::chrono::steady_clock;

  // Training begins. `agent` receives the times of each step except the first, which is not representative; null: no agent.
  // `knows_parts` is false on a GPU: there a call only enqueues work, so its time does not show the cost.
  void begin(AgentChannel* agent, bool knows_parts = false) {
    *this = {};
    agent_ = agent;
    knows_parts_ = knows_parts;
    since_ = Clock::now();
  }
  // Counts the time of `work` for that part. Calls must not be nested, or time would count twice.
  template <class Work>
  auto in(StepPart part, const Work& work) {
    const Timed timed(of(part));
    return work();
  }
  template <class Work>
  auto waiting(const Work& work) {
    return in(StepPart::kWaiting, work);
  }
  // Adds time that was measured elsewhere.
  void waited(std::chrono::nanoseconds time) { of(StepPart::kWaiting) += time; }
  void loaded(std::chrono::nanoseconds time) { of(StepPart::kData) += time; }
  // Moves a part of the time that was counted for `part` to waiting for other ranks.
  void waited_in(StepPart part, std::chrono::nanoseconds time) {
    of(part) -= time;
    of(StepPart::kWaiting) += time;
  }
  // All ranks spent that time on work outside of any step.
  void stood_still(std::chrono::nanoseconds pause) { paused_ += pause; }

  // A step is finished.
  void done(std::int64_t step) {
    const Clock::time_point now = Clock::now();
    const auto took = now - std::exchange(since_, now) - std::exchange(paused_, {});
    if (agent_ != nullptr && steps_before_ > 0) tell(step, took, now);
    ++steps_before_;
    ++steps_;
    took_ += took;
    for (std::size_t i = 0; i < kParts; ++i) sums_[i] += std::exchange(parts_[i], {});
  }

  // Returns the mean time of each part per step since the last call, in milliseconds. The parts add up to the mean step time.
  // Empty if the parts are unknown.
  FigureList take_parts() {
    const auto steps = static_cast<double>(std::exchange(steps_, 0));
    std::chrono::nanoseconds rest = std::exchange(took_, {});
    FigureList figures;
    for (std::size_t i = 0; i < kParts; ++i) {
      const auto sum = std::exchange(sums_[i], {});
      rest -= sum;
      figures.push_back({kNames[i], milliseconds(sum) / steps});
    }
    figures.push_back({"rest_ms", milliseconds(rest) / steps});
    return knows_parts_ && steps > 0 ? figures : FigureList{};
  }

 private:
  static constexpr std::array kNames{"data_ms", "forward_ms", "backward_ms", "waiting_ms", "optimizer_ms"};
  static constexpr std::size_t kParts = kNames.size();

  // Adds its lifetime to a sum.
  class Timed {
   public:
    explicit Timed(std::chrono::nanoseconds& sum) : sum_(sum) {}
    ~Timed() { sum_ += Clock::now() - begin_; }
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

   private:
    std::chrono::nanoseconds& sum_;
    const Clock::time_point begin_ = Clock::now();
  };

  std::chrono::nanoseconds& of(StepPart part) { return parts_[static_cast<std::size_t>(part)]; }
  static double milliseconds(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

  void tell(std::int64_t step, std::chrono::nanoseconds took, Clock::time_point now) {
    const auto us = [](std::chrono::nanoseconds time) {
      return std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::microseconds>(time).count());
    };
    const auto waited = of(StepPart::kWaiting);
    const auto pace = times_.add(
        {.step = step, .own_us = us(took - waited), .waiting_us = us(waited), .data_us = us(of(StepPart::kData))}, now);
    if (pace) agent_->send(*pace);
  }

  AgentChannel* agent_ = nullptr;
  bool knows_parts_ = false;
  channel::StepTimes times_;
  Clock::time_point since_;
  std::chrono::nanoseconds paused_{};
  std::array<std::chrono::nanoseconds, kParts> parts_{};  // parts of the current step
  std::int64_t steps_before_ = 0;
  std::int64_t steps_ = 0;  // steps since take_parts(); the next two members cover the same steps
  std::chrono::nanoseconds took_{};
  std::array<std::chrono::nanoseconds, kParts> sums_{};
};

}  // namespace ddprun::trainer
