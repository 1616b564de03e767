// Base class for tests of replaced workers and of standby workers (processes that wait for a rank). The class sends events to
// AgentState at chosen times, and converts the actions to texts. Each derived test suite passes a renderer, which selects the
// actions to show.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/agent_state/agent_state.hpp"

namespace ddprun::test {

class DrivenAgent : public testing::Test {
 protected:
  using Lines = std::vector<std::string>;
  using Renderer = std::string (*)(const AgentAction&);  // returns "" for an action that the test ignores

  explicit DrivenAgent(Renderer render) : render_(render) {}

  void begin(int world, int max_restarts, int standbys) {
    world_ = world;
    state_.emplace(AgentSettings{.world_size = world,
                                 .workers_have_channel = true,
                                 .shutdown_timeout = std::chrono::milliseconds(20000),
                                 .restarts = {.max_restarts = max_restarts, .refill_by_progress = true},
                                 .regroup_limit = std::chrono::milliseconds(60000),
                                 .standbys = standbys});
    on(agent_event::Begin{});
  }
  void later(int ms) {
    now_.steady += std::chrono::milliseconds(ms);
    now_.realtime_ns += std::int64_t{1'000'000} * ms;
  }
  Lines on(const AgentEvent& event) {
    later(1);
    Lines lines;
    for (const AgentAction& action : state_->on(event, now_)) {
      if (const auto* emit = std::get_if<agent_action::Emit>(&action)) events_.push_back(emit->event);
      if (const auto* timer = std::get_if<agent_action::SetTimer>(&action)) timers_[timer->timer] = timer->after;
      if (const auto* timer = std::get_if<agent_action::CancelTimer>(&action)) timers_.erase(timer->timer);
      if (const std::string line = render_(action); !line.empty()) lines.push_back(line);
    }
    return lines;
  }
  Lines dies(int rank, int signal = SIGKILL) {
    return on(agent_event::WorkerExited{rank, 100 + rank, {.code = 0, .signal = signal}, now_.realtime_ns});
  }
  template <class Event>
  std::vector<Event> emitted() const {
    std::vector<Event> found;
    for (const RunEvent& event : events_) {
      if (const auto* one = std::get_if<Event>(&event)) found.push_back(*one);
    }
    return found;
  }

  int world_ = 0;
  std::optional<AgentState> state_;
  Instant now_{std::chrono::steady_clock::time_point{}, 1'000'000'000};
  std::vector<RunEvent> events_;
  std::map<AgentTimer, std::chrono::milliseconds> timers_;

 private:
  Renderer render_;
};

}  // namespace ddprun::test
