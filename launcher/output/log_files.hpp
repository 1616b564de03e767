// Reads the workers' log files for `ddprun logs`: lists rounds and workers, and returns the bytes that a polling reader has not
// received yet. The subcommand reads the files of its own machine with it (launcher/commands/subcommand_logs.cpp). An agent
// reads its files with it to answer a query from another node (launcher/asked/log_readers.cpp). All calls do blocking file I/O.
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

// The folder of one round in a log folder, "round-000" or "attempt_0".
struct RoundFolder {
  int number = 0;
  LogLayout layout = LogLayout::kRounds;
  std::filesystem::path path{};
};
// Oldest first.
std::vector<RoundFolder> rounds_in(const std::filesystem::path& logs);

// Maps the rank at the end of a folder's name to the folder of that worker. With torchrun's layout it is the local rank.
std::map<int, std::filesystem::path> workers_in(const std::filesystem::path& round);

// The offset at which the last `count` lines begin. It is found by counting newlines from the end of the file; a final newline
// is not counted.
off_t begin_of_tail(int fd, int count);

// Makes `inotify` readable when the folder gets a new folder or file. With `files`, writes to its files count as well. Returns
// false if the folder cannot be watched.
bool watch_folder(int inotify, const std::filesystem::path& folder, bool files);

// The ranks of a node's workers.
struct OwnRanks {
  int first = 0;
  int count = 0;
  bool has(int rank) const { return rank >= first && rank < first + count; }
};

// The reader's position in one stream of one worker.
struct LogPlace {
  int round = 0;   // number in the name of the round's folder
  int worker = 0;  // number in the name of the worker's folder
  bool error = false;
  std::int64_t at = 0;  // offset in bytes
  bool operator==(const LogPlace&) const = default;
};

struct LogWish {
  std::optional<int> rank{};
  bool only_errors = false;
  std::optional<int> tail{};      // for a file that is read for the first time: only its last lines
  bool follows = false;           // the byte limit is divided among the files, so that no file delays the others
  std::vector<LogPlace> begun{};  // copied from the previous answer
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
  bool more = false;  // more bytes are available now
};

// Returns the next bytes from the logs of a node's own ranks. Reading begins in each rank's newest round and continues in later
// rounds. A file already being read is read to its end even if its rank has moved to another node. `inotify`, unless it is -1,
// wakes at every later change.
LogBytes read_logs(const std::filesystem::path& logs, const OwnRanks& own, const LogWish& wish, int inotify = -1);

}  // namespace ddprun
