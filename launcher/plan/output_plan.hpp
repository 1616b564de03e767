// What becomes of the workers' output, as the options say it: torchrun's redirects, tee, filters, prefix and log folders
// (shared words of torch.distributed.run). Values only: plan_output.cpp reads them from the options, and
// WorkerOutput (launcher/output) acts on them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddprun {

// torchrun's numbers: a set of streams.
enum class Streams : std::uint8_t { kNone = 0, kOut = 1, kErr = 2, kBoth = 3 };

inline bool has_stdout(Streams s) {
  return (static_cast<unsigned>(s) & 1u) != 0;
}
inline bool has_stderr(Streams s) {
  return (static_cast<unsigned>(s) & 2u) != 0;
}

// "3" is for every local rank; "0:1,1:2" for those it names, and none for the others.
struct StreamsByRank {
  Streams everyone = Streams::kNone;
  std::map<int, Streams> by_local_rank{};

  Streams of(int local_rank) const {
    const auto found = by_local_rank.find(local_rank);
    return found == by_local_rank.end() ? everyone : found->second;
  }
  bool any() const {
    if (everyone != Streams::kNone) return true;
    for (const auto& [rank, streams] : by_local_rank) {
      if (streams != Streams::kNone) return true;
    }
    return false;
  }
};

// For scripts, modules and programs; a train.json's run has the run directory's layout and none of these.
struct OutputPlan {
  StreamsByRank redirects{};  // to <attempt>/<local rank>/{stdout,stderr}.log and not to the console
  StreamsByRank tee{};        // to the file and, prefixed, to the console
  // Raw output of the other local ranks is not shown; their files stay complete.
  std::optional<std::set<int>> local_ranks_filter{};
  // Lines of teed streams that contain one of these also go to attempt_N/filtered_{stdout,stderr}.log.
  std::vector<std::string> stdout_filters{};
  std::vector<std::string> stderr_filters{};
  // ${role_name} ${rank} ${local_rank} ${hostname}; unknown names stay. Before teed lines.
  std::string prefix_template = "[${role_name}${local_rank}]:";
  bool no_files = false;  // --log-dir /dev/null: no log folder, and TORCHELASTIC_ERROR_FILE is empty
};

}  // namespace ddprun
