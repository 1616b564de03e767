// The results of `ddptrain bench`, and their output as text and JSON. The metrics are defined as in NVIDIA's nccl-tests
// (doc/PERFORMANCE.md there). The code is pure: no I/O, no clock.
//
// The size is the size of a rank's largest buffer. For an all-gather and a reduce-scatter, this buffer has the parts of all
// ranks. algbw is the size divided by the time. busbw is the rate that each link would need in the best algorithm. So busbw
// can be compared with the hardware for any number of ranks. It is algbw times a factor: 2 (n-1)/n for an all-reduce, (n-1)/n
// for a reduce-scatter, all-gather and all-to-all, and 1 for a broadcast and for send and receive.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/surroundings/bench_options.hpp"

namespace ddprun::trainer {

struct BenchResult {
  BenchOperation operation = BenchOperation::kAllReduce;
  std::string backend;  // "shared", "gloo" or "nccl"
  int ranks = 1;
  std::int64_t bytes = 0;
  double seconds = 0;      // time of one call on the slowest rank
  std::int64_t wrong = 0;  // number of elements, on all ranks, that differ from the expected result
};

double algbw(const BenchResult& result);  // bytes per second
double busbw(const BenchResult& result);  // bytes per second

// Returns three lines: the operation, the names of the columns, and the units of the columns.
std::string bench_header(BenchOperation operation, const std::string& backend, int ranks);
std::string bench_line(const BenchResult& result);
// Returns one JSON object without a line end. Its keys are op, backend, ranks, bytes, seconds, algbw, busbw and wrong.
std::string bench_json(const BenchResult& result);

}  // namespace ddprun::trainer
