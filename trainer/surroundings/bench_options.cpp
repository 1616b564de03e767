#include "trainer/surroundings/bench_options.hpp"

#include <CLI/CLI.hpp>

#include <array>
#include <charconv>
#include <cmath>

#include "common/base/error.hpp"
#include "trainer/surroundings/parse_arguments.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::array<std::string_view, 6> kNames{"allreduce", "reduce_scatter", "allgather",
                                                 "broadcast", "alltoall",       "sendrecv"};
constexpr double kMaxBytes = 64.0 * (1 << 30);

std::int64_t bytes_in(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double factor = unit.empty() ? 1 : unit == "K" ? 1 << 10 : unit == "M" ? 1 << 20 : unit == "G" ? 1 << 30 : 0;
  const double bytes = number * factor;
  if (error != std::errc() || !(bytes >= 1 && bytes <= kMaxBytes)) {
    throw UsageError("--sizes expects sizes in bytes, such as 4096,64K,2.5M,1G, from 1 to 64G, but found \"" +
                     std::string(text.substr(0, 40)) + "\"");
  }
  return std::llround(bytes);
}

}  // namespace

std::string_view name_of(BenchOperation operation) {
  return kNames.at(static_cast<std::size_t>(operation));
}

std::vector<std::int64_t> bench_sizes(std::string_view text) {
  std::vector<std::int64_t> sizes;
  while (true) {
    const std::size_t comma = text.find(',');
    sizes.push_back(bytes_in(text.substr(0, comma)));
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

std::optional<BenchOptions> parse_bench_options(const std::vector<std::string>& arguments, std::string& help) {
  BenchOptions options;
  std::string operation;
  std::string sizes;
  CLI::App app(
      "Measures one collective between the workers of a job, and checks its results. Start it on all workers: "
      "ddprun --nproc-per-node 2 ddptrain bench allreduce");
  app.name("ddptrain bench");
  app.add_option("operation", operation, "allreduce, reduce_scatter, allgather, broadcast, alltoall or sendrecv")
      ->type_name("OPERATION")
      ->required();
  app.add_option("--backend", options.backend, "auto, shared, gloo or nccl; default: auto, as ddp.backend in a train.json")
      ->type_name("NAME");
  app.add_option("--sizes", sizes, "sizes of the data in bytes; default: 4K,64K,1M,25M")->type_name("LIST");
  app.add_flag("--copied", options.copied, "shared memory: measure with buffers outside the shared memory");
  app.add_flag("--json", options.json, "print one JSON object per size");
  if (!parse_arguments(app, arguments, help)) return std::nullopt;
  const auto found = std::ranges::find(kNames, operation);
  if (found == kNames.end()) {
    throw UsageError("unknown collective " + operation + "." + did_you_mean(operation, {kNames.begin(), kNames.end()}) +
                     " Expected allreduce, reduce_scatter, allgather, broadcast, alltoall or sendrecv");
  }
  options.operation = static_cast<BenchOperation>(found - kNames.begin());
  if (!sizes.empty()) options.sizes = bench_sizes(sizes);
  return options;
}

}  // namespace ddprun::trainer
