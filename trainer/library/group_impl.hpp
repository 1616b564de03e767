// Implementation behind ddprun::Group: the objects of Job::run() for the ranks that train together.
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
  // Called when a step of `total` is finished.
  std::function<void(std::int64_t total)> finished;
  std::function<void(const std::string& name, double value)> figure;
  std::int64_t reached = 0;  // finished steps at the last call of next_step()
  bool stopped = false;      // the job was asked to stop, and this is the step
  trainer::StepPace pace{};  // started by the loop's DataParallel, which measures the waits
  std::optional<trainer::StepPace::Clock::time_point> asked_for_samples{};  // time of the last call of next_step()
};

}  // namespace ddprun
