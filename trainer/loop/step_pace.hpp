// How long each step takes on this rank and where its time goes. The agent is told own time and waiting, and compares the
// ranks; the log shows all parts (docs/watching.md). train.cpp measures with it, and a loop of somebody's own
// (trainer/library), which knows no parts. The training thread only.
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

// What is none of these is the rest: the log, a save, the loop itself.
enum class StepPart : std::uint8_t { kData, kForward, kBackward, kWaiting, kOptimizer };

class StepPace {
 public:
  using Clock = std::chrono::steady_clock;

  // Training begins. `agent`: who hears of each step, after the first one, which is like no other; null: nobody does.
  // `knows_parts`: this thread does what it counts; not so on a GPU, where a call only says what is to be done.
  void begin(AgentChannel* agent, bool knows_parts = false) {
    *this = {};
    agent_ = agent;
    knows_parts_ = knows_parts;
    since_ = Clock::now();
  }
  // What `work` takes is of that part. One within another would count twice.
  template <class Work>
  auto in(StepPart part, const Work& work) {
    const Timed timed(of(part));
    return work();
  }
  template <class Work>
  auto waiting(const Work& work) {
    return in(StepPart::kWaiting, work);
  }
  // Likewise, of what was measured elsewhere.
  void waited(std::chrono::nanoseconds time) { of(StepPart::kWaiting) += time; }
  void loaded(std::chrono::nanoseconds time) { of(StepPart::kData) += time; }
  // So much of what was counted as that part was waiting for others.
  void waited_in(StepPart part, std::chrono::nanoseconds time) {
    of(part) -= time;
    of(StepPart::kWaiting) += time;
  }
  // All ranks did something that belongs to no step.
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

  // Of a step since the last call, in milliseconds: the mean of each part, which add up to the mean step. Empty where they are
  // not known.
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

  // Adds its own lifetime.
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
  std::array<std::chrono::nanoseconds, kParts> parts_{};  // of this step
  std::int64_t steps_before_ = 0;
  std::int64_t steps_ = 0;  // since parts were taken, as the next two
  std::chrono::nanoseconds took_{};
  std::array<std::chrono::nanoseconds, kParts> sums_{};
};

}  // namespace ddprun::trainer
