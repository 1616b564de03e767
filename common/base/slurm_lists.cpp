// Implementation of slurm_lists.hpp. Only the first host of a list is needed. Its entry ends at the first comma outside
// brackets, and the name of the host contains the first value of each bracket. Example: rack1node08 in
// "rack[1-2]node[08-11],m01".
#include "common/base/slurm_lists.hpp"

#include "common/base/error.hpp"
#include "common/base/numbers.hpp"

namespace ddprun {
namespace {

[[noreturn]] void malformed(std::string_view what, std::string_view text, std::string_view example) {
  throw UsageError("Slurm's " + std::string(what) + " \"" + std::string(text) + "\" cannot be parsed; expected a form like \"" +
                   std::string(example) +
                   "\". Specify the job's layout explicitly: --nnodes, --node-rank and --master-addr for ddprun; MASTER_ADDR, "
                   "RANK, WORLD_SIZE and LOCAL_RANK for ddptrain");
}

int read_count(std::string_view number, std::string_view text) {
  const auto value = exact_number<int>(number);
  if (!value || *value < 1 || *value > (1 << 20)) malformed("list of tasks per node", text, "2(x3),1");
  return *value;
}

}  // namespace

std::string first_slurm_host(std::string_view list) {
  constexpr std::string_view kExample = "n[0-3,7],m01";
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      if (list[at] == ']') malformed("list of nodes", list, kExample);
      host += list[at++];
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string_view::npos) malformed("list of nodes", list, kExample);
    const std::string_view ranges = list.substr(at + 1, close - at - 1);
    const std::string_view first = ranges.substr(0, ranges.find_first_of("-,"));
    if (first.empty() || first.find_first_not_of("0123456789") != std::string_view::npos)
      malformed("list of nodes", list, kExample);
    host += first;  // added as text and not as a number, because leading zeros are part of the host's name
    at = close + 1;
  }
  if (host.empty()) malformed("list of nodes", list, kExample);
  return host;
}

std::vector<int> expand_slurm_counts(std::string_view text) {
  std::vector<int> counts;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    std::string_view part = rest.substr(0, comma);
    int repeats = 1;
    if (const std::size_t open = part.find("(x"); open != std::string_view::npos) {
      if (part.back() != ')') malformed("list of tasks per node", text, "2(x3),1");
      repeats = read_count(part.substr(open + 2, part.size() - open - 3), text);
      part = part.substr(0, open);
    }
    const int count = read_count(part, text);
    if (counts.size() + static_cast<std::size_t>(repeats) > (1u << 20)) malformed("list of tasks per node", text, "2(x3),1");
    counts.insert(counts.end(), static_cast<std::size_t>(repeats), count);
    if (comma == std::string_view::npos) return counts;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace ddprun
