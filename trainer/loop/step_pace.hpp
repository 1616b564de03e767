// How long each step takes on this rank, and how much of it is spent waiting for others: told to the agent, which compares the
// ranks. train.cpp measures with it, and a loop of somebody's own (trainer/library). The training thread only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/channel/step_times.hpp"
#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {

class StepPace {
 public:
  using Clock = std::chrono::steady_clock;

  // Training begins, after the first step, which is like no other. Null: nothing is told.
  void begin(AgentChannel* agent) {
    *this = {};
    agent_ = agent;
  }
  // What `work` takes is time that this rank waits for others, or for its batch.
  template <class Work>
  auto waiting(const Work& work) {
    const Timed timed(waited_);
    return work();
  }
  template <class Work>
  auto loading(const Work& work) {
    const Timed timed(loaded_);
    return work();
  }
  // Likewise, of what was measured elsewhere.
  void waited(std::chrono::nanoseconds time) { waited_ += time; }
  void loaded(std::chrono::nanoseconds time) { loaded_ += time; }
  // All ranks did something that belongs to no step.
  void stood_still(std::chrono::nanoseconds pause) { paused_ += pause; }

  // A step is finished.
  void done(std::int64_t step) {
    if (agent_ == nullptr) return;
    const Clock::time_point now = Clock::now();
    const auto us = [](std::chrono::nanoseconds time) {
      return std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::microseconds>(time).count());
    };
    const auto waited = std::exchange(waited_, {});
    const auto loaded = std::exchange(loaded_, {});
    const auto paused = std::exchange(paused_, {});
    const auto began = std::exchange(since_, now);
    if (!began) return;
    const auto pace = times_.add(
        {.step = step, .own_us = us(now - *began - paused - waited), .waiting_us = us(waited), .data_us = us(loaded)}, now);
    if (pace) agent_->send(*pace);
  }

 private:
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

  AgentChannel* agent_ = nullptr;
  channel::StepTimes times_;
  std::optional<Clock::time_point> since_;
  std::chrono::nanoseconds waited_{}, loaded_{}, paused_{};
};

}  // namespace ddprun::trainer
