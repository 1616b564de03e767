// The log files of workers: their paths in a run directory and in torchrun's layout, and functions that open them and read
// their last lines. FilteredCopy writes lines that match --duplicate-stdout-filters or --duplicate-stderr-filters.
// worker_output.cpp uses this header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/system/descriptor.hpp"
#include "launcher/events/stream.hpp"
#include "launcher/output/line_splitter.hpp"

namespace ddprun {

enum class LogLayout {
  kRounds,    // round-000/rank-00000/: the layout in a run directory, by round and global rank
  kAttempts,  // attempt_0/0/: torchrun's layout, by restart count and local rank
};

std::filesystem::path round_folder(const std::filesystem::path& root, LogLayout layout, int round, int restart_count);
std::filesystem::path worker_folder(const std::filesystem::path& round, LogLayout layout, int rank, int local_rank);
// Returns the directory for the output of a standby that waits for a rank. `standby` counts from 0. Only run directories
// contain such directories.
std::filesystem::path standby_folder(const std::filesystem::path& root, int standby);
const char* log_name(Stream stream);  // "stdout.log"

// Creates the directory, with its parents, if it does not exist. Returns 0 or errno.
int make_folder(const std::filesystem::path& folder);

// Opens the file with O_APPEND, so several processes can write to it. Returns -1 and sets errno on failure.
int open_log(const std::filesystem::path& file);

// Returns the last lines of a file that a worker writes directly (last_lines.hpp), or no lines if the file cannot be read.
std::vector<std::string> last_lines_of(const std::filesystem::path& file);
// Returns the last Python exception in the last 32 KiB of the file (last_exception.hpp), or "" if there is none.
std::string last_exception_of(const std::filesystem::path& file);

// Returns the number of lines in the file, including an unfinished last line. Returns 0 for a file larger than 1 MiB, since
// counting would delay a restart.
std::int64_t line_count(const std::filesystem::path& file);

// A file for all workers of a round. It contains the lines that match a filter, each with the prefix of its worker.
class FilteredCopy {
 public:
  // Returns 0 or errno.
  int open(const std::filesystem::path& file, std::vector<std::string> filters);
  // Writes the matching lines. `lines` must be complete lines, each with its '\n'. Returns 0 or errno.
  int add(std::string_view lines, std::string_view prefix) const;

 private:
  bool wanted(std::string_view line) const;

  Descriptor file_;
  std::vector<std::string> filters_;
};

}  // namespace ddprun
