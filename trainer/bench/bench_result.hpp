// The results of `ddptrain bench`, with the definitions of NVIDIA's nccl-tests (doc/PERFORMANCE.md there), and their output.
// Pure.
//
// The size is that of the largest buffer of a rank: the whole data of an all-gather and a reduce-scatter. algbw is the size
// divided by the time. busbw is the rate that each link would need in the best algorithm, so it can be compared with the
// hardware for any number of ranks: algbw times 2 (n-1)/n for an all-reduce, (n-1)/n for a reduce-scatter, all-gather and
// all-to-all, and 1 for a broadcast and for send and receive.
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
  std::int64_t wrong = 0;  // elements on all ranks that differ from the closed form
};

double algbw(const BenchResult& result);  // bytes per second
double busbw(const BenchResult& result);  // bytes per second

// Three lines: the operation, the names of the columns and their units.
std::string bench_header(BenchOperation operation, const std::string& backend, int ranks);
std::string bench_line(const BenchResult& result);
// One JSON object without a line end: op, backend, ranks, bytes, seconds, algbw, busbw, wrong.
std::string bench_json(const BenchResult& result);

}  // namespace ddprun::trainer
