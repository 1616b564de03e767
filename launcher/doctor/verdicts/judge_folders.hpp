// Judges the folders that a job writes: its run directory, checkpoint.local_dir and the folder for temporary files. A disk
// that is full or gone at the first checkpoint costs all steps before it. Also judges the data that the config names. The code
// is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/doctor/verdicts/check.hpp"
#include "launcher/doctor/verdicts/job_needs.hpp"

namespace ddprun::doctor {

struct FolderFacts {
  std::string path{};
  std::string probed{};          // the folder itself, or its nearest ancestor that exists
  std::string write_problem{};   // why a file cannot be written there; empty if it can
  std::string rename_problem{};  // why rename(2) cannot replace a file there; empty if it can
  std::optional<std::uint64_t> free_bytes{};
  std::optional<std::uint64_t> free_inodes{};  // nullopt if the file system has no fixed number of inodes
  std::string file_system{};                   // type of the mount, such as "ext4"
  bool forbids_programs = false;               // mounted with noexec
  bool is_soft_mount = false;                  // NFS with the option soft
};
Checks judge_run_directory(const FolderFacts& facts, const JobNeeds& needs);
// Judges checkpoint.local_dir. A file system in memory gives no warning, since users choose it on purpose.
Checks judge_local_copies(const FolderFacts& facts);
Checks judge_temporary_folder(const FolderFacts& facts, const JobNeeds& needs);

struct DataFacts {
  std::vector<std::string> missing{};        // such as "data.dir: /data/x does not exist"
  std::vector<std::string> read_problems{};  // such as "/data/x/train.bin cannot be read: Input/output error"
  int files_read = 0;
  std::uint64_t bytes_read = 0;
  double seconds = 0;
};
Checks judge_data(const DataFacts& facts);

}  // namespace ddprun::doctor
