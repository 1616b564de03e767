// The run as all ranks know it after they have agreed: its directory and its length. Worker sets it in each group, always to
// the same values.
#pragma once

#include "common/run_directory/run_directory.hpp"
#include "trainer/data/run_length.hpp"

namespace ddprun::trainer {

struct Run {
  RunLayout layout;  // the root is absolute; empty until the first group
  RunLength length;
};

}  // namespace ddprun::trainer
