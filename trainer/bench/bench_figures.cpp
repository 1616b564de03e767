#include "trainer/bench/bench_figures.hpp"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace ddprun::trainer {

double algbw(const BenchFigures& figures) {
  return figures.seconds > 0 ? static_cast<double>(figures.bytes) / figures.seconds : 0;
}

double busbw(const BenchFigures& figures) {
  const double others = static_cast<double>(figures.ranks - 1) / figures.ranks;
  switch (figures.operation) {
    case BenchOperation::kAllReduce:
      return algbw(figures) * 2 * others;
    case BenchOperation::kReduceScatter:
    case BenchOperation::kAllGather:
    case BenchOperation::kAllToAll:
      return algbw(figures) * others;
    case BenchOperation::kBroadcast:
    case BenchOperation::kSendReceive:
      break;
  }
  return algbw(figures);
}

std::string bench_header(BenchOperation operation, const std::string& backend, int ranks) {
  std::array<char, 200> columns{};
  std::snprintf(columns.data(), columns.size(), "%12s %12s %8s %12s %10s %10s %8s\n%12s %12s %8s %12s %10s %10s %8s", "size",
                "count", "type", "time", "algbw", "busbw", "wrong", "(B)", "(elements)", "", "(us)", "(GB/s)", "(GB/s)", "");
  return std::string(name_of(operation)) + ", " + std::to_string(ranks) + " workers, " + backend + "\n" + columns.data();
}

std::string bench_line(const BenchFigures& figures) {
  constexpr double kGiga = 1e9;
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(), "%12lld %12lld %8s %12.2f %10.3f %10.3f %8lld", static_cast<long long>(figures.bytes),
                static_cast<long long>(figures.bytes / static_cast<std::int64_t>(sizeof(float))), "float",
                figures.seconds * 1e6, algbw(figures) / kGiga, busbw(figures) / kGiga, static_cast<long long>(figures.wrong));
  return line.data();
}

std::string bench_json(const BenchFigures& figures) {
  nlohmann::ordered_json line;
  line["op"] = name_of(figures.operation);
  line["backend"] = figures.backend;
  line["ranks"] = figures.ranks;
  line["bytes"] = figures.bytes;
  line["seconds"] = figures.seconds;
  line["algbw"] = algbw(figures);
  line["busbw"] = busbw(figures);
  line["wrong"] = figures.wrong;
  return line.dump();
}

}  // namespace ddprun::trainer
