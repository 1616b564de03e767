// The file of a node's record and identity (rendezvous/member/record.hpp), which holds what the node must remember while its
// machine is up. It is on this host, and only its user can read it. One agent has it at a time; node_shell.hpp writes it. After
// a reboot, or when the file is lost, it only says that a job may be running elsewhere. The file of its lock tells that a
// record is lost: it is removed only when there is nothing to remember.
//
// A file that cannot be read counts as lost, and its bytes are kept: a damaged file is renamed to NAME.damaged. The file of a
// newer build stays, since that build can read it, and this process writes NAME.format-N. Both leave the identity in the file
// alone: this process gets a new one, so it makes no promise that the old file would have to know.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "rendezvous/node/memory.hpp"

namespace ddprun::rendezvous {

// The incarnation of a process that starts now: higher than that of the process before it with the same identity, even if the
// clock was set back.
std::uint64_t next_incarnation(const Memory& before, std::int64_t realtime_ns);

class RecordFile {
 public:
  // Takes `folder`/`name` or, when other agents of this host have it, `name`-1, -2 and so on; makes the folder. Returns nothing
  // when that is not possible: then the node has no record, and `why` is the reason with the folder's name. For
  // an empty folder there is none to give: the user has no home.
  static std::optional<RecordFile> claim(const std::filesystem::path& folder, const std::string& name,
                                         std::string* why = nullptr);

  RecordFile(RecordFile&& other) noexcept;
  RecordFile& operator=(RecordFile&& other) noexcept;
  ~RecordFile();

  // Call it once, before write(). Sets a file aside that it cannot read; complaint() says so.
  Memory read();
  const std::string& complaint() const { return complaint_; }  // a line for the user; empty if the file could be read
  const std::filesystem::path& path() const { return file_; }
  // Writes the record as a whole or not at all. No fsync: the record need not survive a reboot. When it can't be written,
  // returns false and removes the old record: this process makes promises from now on that the old record does not have.
  bool write(const Memory::Self& self);
  int write_error() const { return error_; }  // errno of the last write() that returned false
  // The job is over for this node. The lock's file is removed with this object.
  void forget();

 private:
  enum class Before { kNewFolder, kNothing, kAnAgent };  // what was in the folder when this agent claimed it
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
  bool lost_;  // if the file is missing, it was lost
};

// $XDG_STATE_HOME/ddprun/nodes/<host>, else ~/.local/state/...; empty when the user has no home.
std::filesystem::path record_folder();

}  // namespace ddprun::rendezvous
