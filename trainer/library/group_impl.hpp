// Behind ddprun::Group: what Job::run() has made for the ranks that train together.
#pragma once

#include <ddprun/job.hpp>

#include <functional>

#include "trainer/job/job_place.hpp"
#include "trainer/library/state_impl.hpp"

namespace ddprun {

struct Group::Impl {
  trainer::JobPlace& place;
  trainer::TrainingState& training;
  c10::Device device;
  // The step is finished; of `total`.
  std::function<void(std::int64_t total)> finished;
  std::function<void(const std::string& name, double value)> figure;
  bool stopped = false;  // the job was told to stop, and this is the step
};

}  // namespace ddprun
