#include "launcher/doctor/verdicts/judge_folders.hpp"

#include <cstdio>

namespace ddprun::doctor {
namespace {

struct Space {
  std::uint64_t least_bytes;  // minimum free space; less is an error
  std::uint64_t usual_bytes;  // usual minimum; less free space is a warning
  std::uint64_t least_inodes;
  std::uint64_t usual_inodes;
};

// Appends a check if the folder has too little space.
void judge_space(Checks& checks, const std::string& name, const FolderFacts& facts, const Space& space,
                 const std::string& remedy) {
  const auto add = [&](bool fails, const std::string& found) {
    checks.push_back(fails ? error(name, found, remedy) : warning(name, found, remedy));
  };
  if (facts.free_bytes && *facts.free_bytes < space.usual_bytes) {
    add(*facts.free_bytes < space.least_bytes, facts.probed + " has " + text_of_bytes(*facts.free_bytes) +
                                                   " free, expected at least " + text_of_bytes(space.usual_bytes));
  } else if (facts.free_inodes && *facts.free_inodes < space.usual_inodes) {
    add(*facts.free_inodes < space.least_inodes, facts.probed + " has " + std::to_string(*facts.free_inodes) +
                                                     " free inodes, expected at least " + std::to_string(space.usual_inodes));
  }
}

std::string found_in(const FolderFacts& facts) {
  std::string text = facts.path;
  if (facts.path != facts.probed) text += " (not created yet)";
  if (facts.free_bytes) text += ": " + text_of_bytes(*facts.free_bytes) + " free";
  if (!facts.file_system.empty()) text += ", " + facts.file_system;
  return text;
}

}  // namespace

Checks judge_run_directory(const FolderFacts& facts, const JobNeeds& needs) {
  const std::string name = "run-directory";
  if (!facts.write_problem.empty()) {
    return {error(name, "no file can be written in " + facts.probed + ": " + facts.write_problem,
                  "choose another folder with --run-dir, or change the permissions, the quota or the mount of this one")};
  }
  if (!facts.rename_problem.empty()) {
    return {error(name, "rename() cannot replace a file in " + facts.probed + ": " + facts.rename_problem,
                  "use --run-dir to choose a folder on a file system with atomic rename: checkpoints depend on it")};
  }
  Checks checks;
  // The size of a script's files is unknown, so the check requires a minimum only for a job with a train.json.
  const bool trains = needs.work == JobNeeds::Work::kTrain;
  judge_space(checks, name, facts,
              {.least_bytes = trains ? 16 * kMebibyte : kMebibyte,
               .usual_bytes = 512 * kMebibyte,
               .least_inodes = 32,
               .usual_inodes = 1024},
              "free some space, or choose another folder with --run-dir: a checkpoint that does not fit is lost");
  if (facts.file_system == "tmpfs" || facts.file_system == "ramfs") {
    checks.push_back(warning(name, facts.probed + " is in memory (" + facts.file_system + "): a reboot deletes the checkpoints",
                             "choose a folder on a disk with --run-dir"));
  }
  if (facts.is_soft_mount) {
    checks.push_back(warning(name, facts.probed + " is an NFS mount with the option soft: writes fail if the server is slow",
                             "mount it with the option hard"));
  }
  if (checks.empty()) checks.push_back(ok(name, found_in(facts)));
  return checks;
}

Checks judge_local_copies(const FolderFacts& facts) {
  const std::string name = "local-copies";
  const std::string remedy = "set checkpoint.local_dir to a folder on this machine with free space";
  if (!facts.write_problem.empty())
    return {error(name, "no file can be written in " + facts.probed + ": " + facts.write_problem, remedy)};
  Checks checks;
  judge_space(checks, name, facts,
              {.least_bytes = kMebibyte, .usual_bytes = 128 * kMebibyte, .least_inodes = 16, .usual_inodes = 256}, remedy);
  if (checks.empty()) checks.push_back(ok(name, found_in(facts)));
  return checks;
}

Checks judge_temporary_folder(const FolderFacts& facts, const JobNeeds& needs) {
  const std::string name = "temporary-folder";
  const std::string remedy = "set TMPDIR to a writable folder with free space";
  if (!facts.write_problem.empty())
    return {error(name, "no file can be written in " + facts.path + ": " + facts.write_problem, remedy)};
  Checks checks;
  judge_space(checks, name, facts,
              {.least_bytes = kMebibyte, .usual_bytes = 64 * kMebibyte, .least_inodes = 16, .usual_inodes = 256}, remedy);
  const bool is_python = needs.work == JobNeeds::Work::kPython;
  if (is_python && facts.forbids_programs) {
    checks.push_back(warning(name,
                             facts.path + " is mounted with noexec: torch.compile and C++ extensions cannot load the code "
                                          "that they compile there",
                             "set TMPDIR to a folder without noexec"));
  }
  // A Unix socket's path has at most 107 bytes. multiprocessing appends /pymp-abcdefgh/listener-abcdefgh.
  constexpr std::size_t kMaxForSockets = 107 - 32;
  if (is_python && facts.path.size() > kMaxForSockets) {
    checks.push_back(
        warning(name,
                facts.path + " is too long for the sockets of Python's multiprocessing: " + std::to_string(facts.path.size()) +
                    " bytes, expected at most " + std::to_string(kMaxForSockets),
                "set TMPDIR to a shorter path"));
  }
  if (checks.empty()) checks.push_back(ok(name, found_in(facts)));
  return checks;
}

Checks judge_data(const DataFacts& facts) {
  Checks checks;
  for (const std::string& one : facts.missing) {
    checks.push_back(error("data", one, "correct the key in the config, or make the data available on this machine"));
  }
  for (const std::string& one : facts.read_problems) {
    checks.push_back(error("data", one, "check the disk or the file server (dmesg), and copy the file again"));
  }
  if (!checks.empty()) return checks;
  if (facts.files_read == 0) return {ok("data", "all files that the config names exist")};
  char speed[64];
  std::snprintf(speed, sizeof speed, " in %.1f s", facts.seconds);
  return {ok("data", "read " + text_of_bytes(facts.bytes_read) + " of " + std::to_string(facts.files_read) +
                         (facts.files_read == 1 ? " file" : " files") + speed)};
}

}  // namespace ddprun::doctor
