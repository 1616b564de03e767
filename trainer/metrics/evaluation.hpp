// What an evaluation on the test set found (trainer/loop/evaluate.hpp makes it; state, checkpoints and logs keep it).
#pragma once

#include <cstdint>

#include "common/base/figure.hpp"

namespace ddprun::trainer {

struct Evaluation {
  FigureList figures;  // as the task names them
  std::int64_t samples = 0;
};

}  // namespace ddprun::trainer
