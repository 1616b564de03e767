// Options about the workers' output: torchrun's redirects, tee, filters, prefix and log folders, with the names of
// torch.distributed.run. Values only: plan_output.cpp reads them from the options, and WorkerOutput (launcher/output) applies
// them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddprun {

// A set of streams, with torchrun's numbers.
enum class Streams : std::uint8_t { kNone = 0, kOut = 1, kErr = 2, kBoth = 3 };

inline bool has_stdout(Streams s) {
  return (static_cast<unsigned>(s) & 1u) != 0;
}
inline bool has_stderr(Streams s) {
  return (static_cast<unsigned>(s) & 2u) != 0;
}

// "3" applies to every local rank. "0:1,1:2" applies to the named local ranks only; the others have no streams.
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

// For scripts, modules and programs. A train.json uses the layout of the run directory and none of these options.
struct OutputPlan {
  StreamsByRank redirects{};  // to <attempt>/<local rank>/{stdout,stderr}.log and not to the console
  StreamsByRank tee{};        // to the file and, prefixed, to the console
  // Raw output of other local ranks is not shown. Their files stay complete.
  std::optional<std::set<int>> local_ranks_filter{};
  // Teed lines that contain one of these texts are also written to attempt_N/filtered_{stdout,stderr}.log.
  std::vector<std::string> stdout_filters{};
  std::vector<std::string> stderr_filters{};
  // The prefix of teed lines. ${role_name}, ${rank}, ${local_rank} and ${hostname} are replaced; other names are unchanged.
  std::string prefix_template = "[${role_name}${local_rank}]:";
  bool terminals = true;  // raw output that goes to no file gets a pty if our own stream is a terminal; false: --no-pty
  bool no_files = false;  // --log-dir /dev/null: no log folder, and TORCHELASTIC_ERROR_FILE is empty
};

}  // namespace ddprun
