// The options for worker output, with the names and meanings of torchrun (torch.distributed.run): redirects, tee, filters,
// prefix and log directories. This header only defines values. plan_output.cpp reads them from the options, and WorkerOutput
// (launcher/output) applies them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddprun {

// The output streams that an option selects. The numbers are the values of torchrun's --redirects and --tee.
enum class Streams : std::uint8_t { kNone = 0, kOut = 1, kErr = 2, kBoth = 3 };

inline bool has_stdout(Streams s) {
  return (static_cast<unsigned>(s) & 1u) != 0;
}
inline bool has_stderr(Streams s) {
  return (static_cast<unsigned>(s) & 2u) != 0;
}

// The value of --redirects or --tee. "3" selects both streams of every local rank. "0:1,1:2" selects stdout of local rank 0 and
// stderr of local rank 1; for all other ranks it selects nothing.
struct StreamsByRank {
  Streams default_streams = Streams::kNone;
  std::map<int, Streams> by_local_rank{};

  Streams of(int local_rank) const {
    const auto found = by_local_rank.find(local_rank);
    return found == by_local_rank.end() ? default_streams : found->second;
  }
  bool any() const {
    if (default_streams != Streams::kNone) return true;
    for (const auto& [rank, streams] : by_local_rank) {
      if (streams != Streams::kNone) return true;
    }
    return false;
  }
};

// The output options of a script, a module or a program. With a train.json they have no effect: worker output is in the run
// directory.
struct OutputPlan {
  // streams that are written only to <attempt>/<local rank>/{stdout,stderr}.log, and not to the console
  StreamsByRank redirects{};
  StreamsByRank tee{};  // streams that are written to the file and, with a prefix before each line, to the console
  // --local-ranks-filter: the console shows only the output of these local ranks. nullopt if it shows the output of all ranks.
  // The log files contain the output of all ranks.
  std::optional<std::set<int>> local_ranks_filter{};
  // Lines of --tee streams that contain one of these texts are also written to attempt_N/filtered_{stdout,stderr}.log.
  std::vector<std::string> stdout_filters{};
  std::vector<std::string> stderr_filters{};
  // The prefix of lines of --tee streams. ${role_name}, ${rank}, ${local_rank} and ${hostname} are replaced; other names stay
  // unchanged.
  std::string prefix_template = "[${role_name}${local_rank}]:";
  bool terminals = true;  // a stream that goes only to the terminal gets a pseudo-terminal; false with --no-pty
  bool no_files = false;  // --log-dir /dev/null: there are no log files, and TORCHELASTIC_ERROR_FILE is empty
};

}  // namespace ddprun
