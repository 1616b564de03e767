// The workers' log files as `ddprun logs` shows them: which rounds and workers there are, and what a reader who comes again and
// again has not had yet. The subcommand reads those of its machine with it (launcher/commands/subcommand_logs.cpp), and an
// agent those that somebody on another node asks for (launcher/asked/log_readers.cpp). A call takes as long as the file system
// does.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/output/worker_output_files.hpp"

namespace ddprun {

// A folder of a round below a log folder, "round-000" or "attempt_0".
struct RoundFolder {
  int number = 0;
  LogLayout layout = LogLayout::kRounds;
  std::filesystem::path path{};
};
// Oldest first.
std::vector<RoundFolder> rounds_in(const std::filesystem::path& logs);

// The workers' folders of a round by the rank (of torchrun's layout: the local rank) that their names end with.
std::map<int, std::filesystem::path> workers_in(const std::filesystem::path& round);

// Where the last `count` lines begin: behind so many newlines, counted from the end. The newline at the very end is one more.
off_t begin_of_tail(int fd, int count);

// Wakes `inotify` when something in the folder changes: a new folder or file, and with `files` also what its files get. False:
// it cannot be watched.
bool watch_folder(int inotify, const std::filesystem::path& folder, bool files);

// The ranks whose workers a node has.
struct OwnRanks {
  int first = 0;
  int count = 0;
  bool has(int rank) const { return rank >= first && rank < first + count; }
};

// How far a reader has come in one stream of one worker.
struct LogPlace {
  int round = 0;   // the number in the name of the round's folder
  int worker = 0;  // that of the worker's folder
  bool error = false;
  std::int64_t at = 0;  // bytes
  bool operator==(const LogPlace&) const = default;
};

struct LogWish {
  std::optional<int> rank{};
  bool only_errors = false;
  std::optional<int> tail{};      // of a file that is begun now: its last lines only
  bool follows = false;           // what comes is shared among the files, so that none keeps the others waiting
  std::vector<LogPlace> begun{};  // as the answer before had it
  std::size_t most_bytes = 64 << 10;
};
struct LogPiece {
  int rank = 0;
  int round = 0;
  bool error = false;
  std::string bytes{};
};
struct LogBytes {
  std::vector<LogPlace> begun;
  std::vector<LogPiece> pieces;
  bool more = false;  // there is more already
};

// The next bytes of the logs of a node's own ranks: of each rank those of its newest round, and of later rounds as they come. A
// file that was begun is read to its end also when its rank is on another node now. `inotify`, if it is not -1, wakes at
// whatever changes from here on.
LogBytes read_logs(const std::filesystem::path& logs, const OwnRanks& own, const LogWish& wish, int inotify = -1);

}  // namespace ddprun
