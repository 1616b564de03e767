// Reads and writes the file that contains the record and the identity of a node (rendezvous/member/record.hpp). The file is on
// the node's host. Only its user can read it, and only one agent at a time can lock it. NodeShell (node_shell.hpp) uses this
// class.
//
// A restarted agent continues with the identity in the file only if the machine was not rebooted. The file is written without
// fsync, so it may be outdated after a reboot. An outdated file proves only that a job might still be running elsewhere. A
// lock file without a record proves the same: an agent that leaves no record removes its lock file too, so the record was
// lost.
//
// An unreadable file counts as lost, but is not deleted. A damaged file is renamed to NAME.damaged. The file of a newer build
// keeps its name, because that build can read it. This process then writes NAME.format-N instead. In both cases this process
// gets a new identity, so it cannot contradict the promises (votes) in the old file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/system/descriptor.hpp"
#include "rendezvous/node/restored_state.hpp"

namespace ddprun::rendezvous {

// Returns the incarnation (start time in ns) of a process that starts at `realtime_ns`. It is larger than the incarnation of
// the previous process with the same identity, even if the clock was set back.
std::uint64_t next_incarnation(const RestoredState& before, std::int64_t realtime_ns);

class RecordFile {
 public:
  // Locks the file `name` in `folder`, or `name`-1, -2 and so on if other agents of this host use the earlier names. Creates
  // the folder. If the folder or the file cannot be created, the node keeps no record: returns nullopt, and sets `why` to the
  // reason with the folder's name. `folder` is empty if the user has no home directory. In this case, returns nullopt and does
  // not set `why`.
  static std::optional<RecordFile> claim(const std::filesystem::path& folder, const std::string& name,
                                         std::string* why = nullptr);

  RecordFile(RecordFile&&) noexcept = default;
  RecordFile& operator=(RecordFile&&) noexcept = default;
  ~RecordFile();

  // Reads the state of earlier processes. If the file is unreadable, keeps it as described at the top of this file, and sets
  // complaint(). Call this once, before write().
  RestoredState read();
  const std::string& complaint() const { return complaint_; }  // a message for the user; empty if the file could be read
  const std::filesystem::path& path() const { return file_; }
  // Writes the record atomically. It uses no fsync, because the record need not survive a reboot. If the write fails, returns
  // false and removes the old record, because this process will make promises (votes) that the old record does not contain.
  bool write(const RestoredState::Identity& self);
  int write_error() const { return error_; }  // errno of the last failed write()
  // Call this when the job has ended for this node. forget() removes the record, and later the destructor removes the lock
  // file.
  void forget();

 private:
  // the files of an earlier agent that existed when this agent took the lock
  enum class Previous { kNewFolder, kNothing, kAgent };
  RecordFile(std::filesystem::path file, Descriptor lock, Previous before)
      : file_(std::move(file)),
        lock_file_(file_.string() + ".lock"),
        lock_(std::move(lock)),
        previous_(before),
        lost_(before == Previous::kAgent) {}
  void set_aside(const std::string& reason);
  void keep_for_newer_build(int format);

  std::filesystem::path file_;
  std::filesystem::path lock_file_;
  std::string complaint_;
  int error_ = 0;
  Descriptor lock_;  // -1 after a move
  Previous previous_;
  bool lost_;  // if the record file is missing: true if it was lost, false if it never existed
};

// Returns the folder for records, nodes/<host> in state_folder(); empty if the user has no home directory.
std::filesystem::path record_folder();

}  // namespace ddprun::rendezvous
