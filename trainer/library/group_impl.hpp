// The private implementation of ddprun::Group: references to the objects that Job::run() uses for one process group.
#pragma once

#include <ddprun/job.hpp>

#include <functional>
#include <optional>

#include "trainer/job/job_place.hpp"
#include "trainer/library/state_impl.hpp"
#include "trainer/loop/step_pace.hpp"

namespace ddprun {

struct Group::Impl {
  trainer::JobPlace& place;
  trainer::TrainingState& training;
  c10::Device device;
  // next_step() calls this in each step, with its argument `total`.
  std::function<void(std::int64_t total)> finished;
  std::function<void(const std::string& name, double value)> figure;
  std::int64_t reached = 0;  // number of finished steps at the last call to next_step()
  bool stopped = false;      // true if the agent has requested that the job stops at this step
  trainer::StepPace pace{};  // measures step times; DataParallel starts it and reports the waiting times to it
  std::optional<trainer::StepPace::Clock::time_point> samples_requested_at{};  // time of the last call to next_step()
};

}  // namespace ddprun
