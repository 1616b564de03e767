// Reads the workers' log files for `ddprun logs`. It lists rounds and workers, and returns the bytes that a polling reader has
// not received yet. The subcommand uses it for files of the local machine (launcher/commands/subcommand_logs.cpp). An agent
// uses it to answer a query from another node (launcher/query/cluster/log_tailer.cpp). All functions do blocking file I/O.
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

// The directory of one round (one start of all workers), such as "round-000", or "attempt_0" in torchrun's layout.
struct RoundFolder {
  int number = 0;
  LogLayout layout = LogLayout::kRounds;
  std::filesystem::path path{};
};
// Returns the rounds in a log directory, oldest first.
std::vector<RoundFolder> rounds_in(const std::filesystem::path& logs);

// Returns the worker directories of a round. The key is the number at the end of the directory's name: the rank in a run
// directory, or the local rank in torchrun's layout.
std::map<int, std::filesystem::path> workers_in(const std::filesystem::path& round);

// Returns the worker directories of a round by global rank. `first_rank` is the global rank of this node's first worker. It is
// needed if the directories are named by local ranks.
std::map<int, std::filesystem::path> ranks_in(const RoundFolder& round, int first_rank);
// Returns the newest directory of each rank. A worker that survived a live recovery still writes to the files of an earlier
// round.
std::map<int, std::filesystem::path> newest_folders(const std::filesystem::path& logs, int first_rank);

// Returns the file offset at which the last `count` lines start. A newline at the very end of the file starts no line.
off_t tail_offset(int fd, int count);

// Watches a directory: `inotify` becomes readable when a file or directory is created in it. If `files` is true, this also
// happens when a file in it is written. Returns false if the directory cannot be watched.
bool watch_folder(int inotify, const std::filesystem::path& folder, bool files);

// The global ranks of a node's workers.
struct LocalRanks {
  int first = 0;
  int count = 0;
  bool has(int rank) const { return rank >= first && rank < first + count; }
};

// A reader's position in one log file of a worker.
struct LogPosition {
  int round = 0;   // number in the name of the round's directory
  int worker = 0;  // number in the name of the worker's directory
  bool error = false;
  std::int64_t at = 0;  // offset in bytes
  bool operator==(const LogPosition&) const = default;
};

struct LogRequest {
  std::optional<int> rank{};
  bool only_errors = false;
  std::optional<int> tail{};          // number of last lines to read from a file that is not in `cursor`; nullopt: all
  bool follows = false;               // true: max_bytes is divided among the files, so that one file cannot delay the others
  std::vector<LogPosition> cursor{};  // cursor of the previous reply; empty in the first request
  std::size_t max_bytes = 64 << 10;
};
struct LogPiece {
  int rank = 0;
  int round = 0;
  bool error = false;
  std::string bytes{};
};
struct LogBytes {
  std::vector<LogPosition> cursor;
  std::vector<LogPiece> pieces;
  bool more = false;  // more bytes are available, so the reader should send the next request immediately
};

// Returns the next bytes from the logs of the ranks on this node. Reading starts in the newest round of each rank and continues
// in later rounds. If a rank moves to another node, its last file on this node is still read to the end. If `inotify` is not
// -1, it becomes readable at every later change.
LogBytes read_logs(const std::filesystem::path& logs, const LocalRanks& local_ranks, const LogRequest& request,
                   int inotify = -1);

}  // namespace ddprun
