#include "trainer/bench/bench_result.hpp"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace ddprun::trainer {

double algbw(const BenchResult& result) {
  return result.seconds > 0 ? static_cast<double>(result.bytes) / result.seconds : 0;
}

double busbw(const BenchResult& result) {
  const double others = static_cast<double>(result.ranks - 1) / result.ranks;
  switch (result.operation) {
    case BenchOperation::kAllReduce:
      return algbw(result) * 2 * others;
    case BenchOperation::kReduceScatter:
    case BenchOperation::kAllGather:
    case BenchOperation::kAllToAll:
      return algbw(result) * others;
    case BenchOperation::kBroadcast:
    case BenchOperation::kSendReceive:
      break;
  }
  return algbw(result);
}

std::string bench_header(BenchOperation operation, const std::string& backend, int ranks) {
  std::array<char, 200> columns{};
  std::snprintf(columns.data(), columns.size(), "%12s %12s %8s %12s %10s %10s %8s\n%12s %12s %8s %12s %10s %10s %8s", "size",
                "count", "type", "time", "algbw", "busbw", "wrong", "(B)", "(elements)", "", "(us)", "(GB/s)", "(GB/s)", "");
  return std::string(name_of(operation)) + ", " + std::to_string(ranks) + " workers, " + backend + "\n" + columns.data();
}

std::string bench_line(const BenchResult& result) {
  constexpr double kGiga = 1e9;
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(), "%12lld %12lld %8s %12.2f %10.3f %10.3f %8lld", static_cast<long long>(result.bytes),
                static_cast<long long>(result.bytes / static_cast<std::int64_t>(sizeof(float))), "float", result.seconds * 1e6,
                algbw(result) / kGiga, busbw(result) / kGiga, static_cast<long long>(result.wrong));
  return line.data();
}

std::string bench_json(const BenchResult& result) {
  nlohmann::ordered_json line;
  line["op"] = name_of(result.operation);
  line["backend"] = result.backend;
  line["ranks"] = result.ranks;
  line["bytes"] = result.bytes;
  line["seconds"] = result.seconds;
  line["algbw"] = algbw(result);
  line["busbw"] = busbw(result);
  line["wrong"] = result.wrong;
  return line.dump();
}

}  // namespace ddprun::trainer
