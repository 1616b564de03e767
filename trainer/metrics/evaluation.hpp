// The result of an evaluation on the test set. evaluate() (trainer/loop/evaluate.hpp) returns it. The training state,
// checkpoints and logs contain it.
#pragma once

#include <cstdint>

#include "common/base/metric.hpp"

namespace ddprun::trainer {

struct Evaluation {
  MetricList figures;        // metrics with the names that the task defines
  std::int64_t samples = 0;  // size of the test set
};

}  // namespace ddprun::trainer
