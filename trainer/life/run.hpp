// The run as all its ranks know it, once they have agreed: where it is kept, and how long it is. Worker fills it in, group by
// group; it is the same each time.
#pragma once

#include "common/run_directory/run_directory.hpp"
#include "trainer/data/run_length.hpp"

namespace ddprun::trainer {

struct Run {
  RunLayout layout;  // the root is absolute; empty until the first group
  RunLength length;
};

}  // namespace ddprun::trainer
