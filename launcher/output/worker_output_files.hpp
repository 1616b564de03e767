// The log files of workers: their paths in a run directory and in torchrun's layout, opening them, and reading their last
// lines. Also writes the copies of teed lines for --duplicate-*-filters. Used by worker_output.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/events/stream.hpp"
#include "launcher/output/line_splitter.hpp"

namespace ddprun {

enum class LogLayout {
  kRounds,    // round-000/rank-00000/, as in a run directory
  kAttempts,  // attempt_0/0/: torchrun's layout, by restart count and local rank
};

std::filesystem::path round_folder(const std::filesystem::path& root, LogLayout layout, int round, int restart_count);
std::filesystem::path worker_folder(const std::filesystem::path& round, LogLayout layout, int rank, int local_rank);
// The output folder of a waiting standby worker, counted from 0. Run directories only.
std::filesystem::path standby_folder(const std::filesystem::path& root, int standby);
const char* log_name(Stream stream);  // "stdout.log"

// Creates the folder if it does not exist. Returns 0 or errno.
int make_folder(const std::filesystem::path& folder);

// Opens with O_APPEND, so that several processes may write to the file. Returns -1 and sets errno on failure.
int open_log(const std::filesystem::path& file);

// The last lines of a file that a worker writes directly; see last_lines.hpp. Empty if it can't be read.
std::vector<std::string> last_lines_of(const std::filesystem::path& file);
// The last Python exception in the file's last 32 KiB; see last_exception.hpp. Empty if there is none.
std::string last_exception_of(const std::filesystem::path& file);

// The number of lines in the file, including an unfinished last one. 0 if the file is too large to be read while a restart
// waits.
std::int64_t line_count(const std::filesystem::path& file);

// One file with the lines of all workers of a round that contain one of the filters, with prefixes.
class FilteredCopy {
 public:
  FilteredCopy() = default;
  ~FilteredCopy() { close(); }
  FilteredCopy(const FilteredCopy&) = delete;
  FilteredCopy& operator=(const FilteredCopy&) = delete;

  // Returns 0 or errno.
  int open(const std::filesystem::path& file, std::vector<std::string> filters);
  void close();
  // `lines` are complete, each with its '\n'. Returns 0 or errno.
  int add(std::string_view lines, std::string_view prefix) const;

 private:
  bool wanted(std::string_view line) const;

  int fd_ = -1;
  std::vector<std::string> filters_;
};

}  // namespace ddprun
