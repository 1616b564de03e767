// `ddptrain bench`: measures one collective between the workers of a job, and counts wrong elements.
#pragma once

#include "trainer/surroundings/bench_options.hpp"

namespace ddprun::trainer {

// Runs on all workers of a job. Rank 0 prints the results. Returns the exit code: 1 if an element was wrong. Throws
// UsageError. If a worker is lost, throws the error of the process group.
int run_bench(const BenchOptions& options);

}  // namespace ddprun::trainer
