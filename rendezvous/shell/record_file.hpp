// The file of a node's record and identity (rendezvous/member/record.hpp): the state that the node needs as long as its machine
// is up. It is on this host, and only its user can read it. One agent has it at a time; node_shell.hpp writes it. After a
// reboot, or after a loss of the file, it only shows that a job may be running elsewhere. A lock file without a record means
// that the record was lost: the lock file is removed only if there is nothing to remember.
//
// An unreadable file counts as lost, and its bytes are kept. A damaged file is renamed to NAME.damaged. The file of a newer
// build stays, since that build can read it, and this process writes NAME.format-N. In both cases this process gets a new
// identity, so it makes no promise that the old file would need.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "rendezvous/node/memory.hpp"

namespace ddprun::rendezvous {

// The incarnation of a process that starts now. It is higher than that of the previous process with the same identity, even if
// the clock was set back.
std::uint64_t next_incarnation(const Memory& before, std::int64_t realtime_ns);

class RecordFile {
 public:
  // Takes `folder`/`name` or, if other agents of this host have it, `name`-1, -2 and so on; creates the folder. Returns nullopt
  // if that is not possible: then the node has no record, and `why` is the reason with the folder's name. An empty `folder`
  // means that the user has no home directory; then there is no reason to report.
  static std::optional<RecordFile> claim(const std::filesystem::path& folder, const std::string& name,
                                         std::string* why = nullptr);

  RecordFile(RecordFile&& other) noexcept;
  RecordFile& operator=(RecordFile&& other) noexcept;
  ~RecordFile();

  // Call it once, before write(). Sets an unreadable file aside and reports that in complaint().
  Memory read();
  const std::string& complaint() const { return complaint_; }  // a line for the user; empty if the file could be read
  const std::filesystem::path& path() const { return file_; }
  // Writes the record atomically. No fsync: the record need not survive a reboot. If it can't be written, returns false and
  // removes the old record, since this process makes further promises that the old record does not contain.
  bool write(const Memory::Self& self);
  int write_error() const { return error_; }  // errno of the last write() that returned false
  // The job is over for this node. The destructor removes the lock file.
  void forget();

 private:
  enum class Before { kNewFolder, kNothing, kAnAgent };  // content of the folder when this agent claimed it
  RecordFile(std::filesystem::path file, int lock, Before before)
      : file_(std::move(file)),
        lock_file_(file_.string() + ".lock"),
        lock_(lock),
        before_(before),
        lost_(before == Before::kAnAgent) {}
  void set_aside(const std::string& reason);
  void leave_to_newer_build(int format);

  std::filesystem::path file_;
  std::filesystem::path lock_file_;
  std::string complaint_;
  int error_ = 0;
  int lock_ = -1;
  Before before_;
  bool lost_;  // true: a missing file was lost
};

// $XDG_STATE_HOME/ddprun/nodes/<host>, or else ~/.local/state/...; empty if the user has no home directory.
std::filesystem::path record_folder();

}  // namespace ddprun::rendezvous
