// The options of `ddptrain bench`, which measures one collective between the workers of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

enum class BenchOperation { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kSendReceive };

struct BenchOptions {
  BenchOperation operation = BenchOperation::kAllReduce;
  std::string backend = "auto";                                           // a value of ddp.backend in train.json
  std::vector<std::int64_t> sizes{4 << 10, 64 << 10, 1 << 20, 25 << 20};  // sizes in bytes
  bool copied = false;  // for shared memory; true: use ordinary buffers, which are copied, instead of buffers in the segment
  bool json = false;
};

// Returns the name of the operation on the command line, such as "allreduce".
std::string_view name_of(BenchOperation operation);

// Parses sizes such as "4K,64K,2.5M,1G", and returns them in bytes. The function is pure. Throws UsageError for another
// format, and for a size above 64 GiB or below 1.
std::vector<std::int64_t> bench_sizes(std::string_view text);

// Parses the arguments after "bench". If the arguments request help, sets `help` and returns nullopt. Throws UsageError.
std::optional<BenchOptions> parse_bench_options(const std::vector<std::string>& arguments, std::string& help);

}  // namespace ddprun::trainer
