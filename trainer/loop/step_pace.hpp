// Measures the time of each step on this rank, and of its parts: data, forward, backward, waiting, optimizer. The agent
// receives the computing time and the waiting time, and compares ranks to find stragglers. The log shows all parts
// (docs/watching.md). train.cpp uses this class. Custom training loops (trainer/library) use it without parts. Only the
// training thread may use it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/base/metric.hpp"
#include "common/channel/step_times.hpp"
#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {

// The parts of a step. kWaiting is the time for which this rank waits for other ranks. The remaining time of a step, such as
// the time to write the log, is reported as "rest".
enum class StepPart : std::uint8_t { kData, kForward, kBackward, kWaiting, kOptimizer };

class StepPace {
 public:
  using Clock = std::chrono::steady_clock;

  // Starts the measurement. `agent` receives the times of each step except the first, which is not representative. `agent` may
  // be null. `knows_parts` is false on a GPU, where the CPU time of a call is only the time to enqueue the work.
  void begin(AgentChannel* agent, bool knows_parts = false) {
    *this = {};
    agent_ = agent;
    knows_parts_ = knows_parts;
    since_ = Clock::now();
  }
  // Runs `work` and adds its duration to `part`. Calls must not be nested, since the inner time would be added twice.
  template <class Work>
  auto in(StepPart part, const Work& work) {
    const Timed timed(of(part));
    return work();
  }
  template <class Work>
  auto waiting(const Work& work) {
    return in(StepPart::kWaiting, work);
  }
  // Both functions add time that the caller has measured.
  void waited(std::chrono::nanoseconds time) { of(StepPart::kWaiting) += time; }
  void loaded(std::chrono::nanoseconds time) { of(StepPart::kData) += time; }
  // Moves `time` from `part` to kWaiting. Call this if the rank only waited during a time that was added to `part`.
  void move_to_waiting(StepPart part, std::chrono::nanoseconds time) {
    of(part) -= time;
    of(StepPart::kWaiting) += time;
  }
  // Excludes a pause, such as an evaluation, from the time of the current step.
  void exclude_pause(std::chrono::nanoseconds pause) { paused_ += pause; }

  // Call this at the end of each step. Sends the times of the step to the agent.
  void done(std::int64_t step) {
    const Clock::time_point now = Clock::now();
    const auto took = now - std::exchange(since_, now) - std::exchange(paused_, {});
    if (agent_ != nullptr && steps_before_ > 0) send_times(step, took, now);
    ++steps_before_;
    ++steps_;
    took_ += took;
    for (std::size_t i = 0; i < kParts; ++i) sums_[i] += std::exchange(parts_[i], {});
  }

  // Returns the mean time per step since the last call, in milliseconds: one entry for each part, and the entry "rest". The
  // sum of all entries is the mean step time. Returns an empty list if the times of the parts are unknown.
  MetricList take_parts() {
    const auto steps = static_cast<double>(std::exchange(steps_, 0));
    std::chrono::nanoseconds rest = std::exchange(took_, {});
    MetricList figures;
    for (std::size_t i = 0; i < kParts; ++i) {
      const auto sum = std::exchange(sums_[i], {});
      rest -= sum;
      figures.push_back({kNames[i], milliseconds(sum) / steps});
    }
    figures.push_back({"rest_ms", milliseconds(rest) / steps});
    return knows_parts_ && steps > 0 ? figures : MetricList{};
  }

 private:
  static constexpr std::array kNames{"data_ms", "forward_ms", "backward_ms", "waiting_ms", "optimizer_ms"};
  static constexpr std::size_t kParts = kNames.size();

  // Adds the lifetime of this object to `sum`.
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

  void send_times(std::int64_t step, std::chrono::nanoseconds took, Clock::time_point now) {
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
  std::array<std::chrono::nanoseconds, kParts> parts_{};  // times of the parts of the current step
  std::int64_t steps_before_ = 0;
  std::int64_t steps_ = 0;  // number of steps since the last take_parts(); took_ and sums_ are sums over these steps
  std::chrono::nanoseconds took_{};
  std::array<std::chrono::nanoseconds, kParts> sums_{};
};

}  // namespace ddprun::trainer
