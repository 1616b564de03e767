// What an evaluation on the test set found (trainer/loop/evaluate.hpp makes it; state, checkpoints and logs keep it).
#pragma once

#include <cstdint>

namespace ddprun::trainer {

struct Evaluation {
  double loss = 0;      // mean cross entropy, without label smoothing
  double accuracy = 0;  // 0..1
  std::int64_t samples = 0;
};

}  // namespace ddprun::trainer
