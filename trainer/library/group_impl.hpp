// Behind ddprun::Group: what Job::run() has made for the ranks that train together.
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
  // The step is finished; of `total`.
  std::function<void(std::int64_t total)> finished;
  std::function<void(const std::string& name, double value)> figure;
  std::int64_t reached = 0;  // finished when next_step() was called last
  bool stopped = false;      // the job was told to stop, and this is the step
  trainer::StepPace pace{};  // begun by the loop's DataParallel, which knows what is waited for
  std::optional<trainer::StepPace::Clock::time_point> asked_for_samples{};  // since next_step()
};

}  // namespace ddprun
