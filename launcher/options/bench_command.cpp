#include "launcher/options/bench_command.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/suggest.hpp"

namespace ddprun {
namespace {

constexpr std::array<std::string_view, 6> kCollectives{"allreduce", "reduce_scatter", "allgather",
                                                       "broadcast", "alltoall",       "sendrecv"};
constexpr std::array<std::string_view, 2> kFlags{"--copied", "--json"};
constexpr std::array<std::string_view, 2> kWithValue{"--backend", "--sizes"};

}  // namespace

std::vector<std::string> command_of_bench(std::span<const std::string> args, const std::string& trainer) {
  const std::string collective = args.empty() ? "" : args.front();
  if (std::ranges::find(kCollectives, collective) == kCollectives.end()) {
    throw UsageError(
        "bench expects allreduce, reduce_scatter, allgather, broadcast, alltoall or sendrecv as its first argument, " +
        (args.empty() ? std::string("but found none") : "but found '" + collective + "'.") +
        did_you_mean(collective, {kCollectives.begin(), kCollectives.end()}));
  }
  std::vector<std::string> launcher;
  std::vector<std::string> program{trainer, "bench", collective};
  for (std::size_t i = 1; i < args.size(); ++i) {
    const std::string name = args[i].substr(0, args[i].find('='));
    const bool has_value = std::ranges::find(kWithValue, name) != kWithValue.end();
    std::vector<std::string>& to = has_value || std::ranges::find(kFlags, name) != kFlags.end() ? program : launcher;
    to.push_back(args[i]);
    if (has_value && name == args[i] && i + 1 < args.size()) program.push_back(args[++i]);
  }
  launcher.insert(launcher.end(), program.begin(), program.end());
  return launcher;
}

}  // namespace ddprun
