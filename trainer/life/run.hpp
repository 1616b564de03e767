// The run's directory and length, which are the same on all ranks. Worker sets them in each group, and the values never change.
#pragma once

#include "common/run_directory/run_directory.hpp"
#include "trainer/data/run_length.hpp"

namespace ddprun::trainer {

struct Run {
  RunLayout layout;  // the root path is absolute; empty until the first group
  RunLength length;
};

}  // namespace ddprun::trainer
