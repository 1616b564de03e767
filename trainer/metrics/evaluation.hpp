// Result of an evaluation on the test set. trainer/loop/evaluate.hpp makes it; the state, checkpoints and logs keep it.
#pragma once

#include <cstdint>

#include "common/base/figure.hpp"

namespace ddprun::trainer {

struct Evaluation {
  FigureList figures;  // named by the task
  std::int64_t samples = 0;
};

}  // namespace ddprun::trainer
