// What a node must remember while its machine is up (rendezvous/member/record.hpp), with its identity, in a file of this host
// that only its user can read. One agent has it at a time; node_shell.hpp writes it. Of a record of before the machine's last
// start, and of one that is lost, only this counts: that a job may be running elsewhere. That a record is lost shows by the
// file of its lock, which goes only when nothing is to be remembered.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "rendezvous/node/memory.hpp"

namespace ddprun::rendezvous {

// Of a process that starts now: later than that of the one before it under the same identity, although the clock was set back.
std::uint64_t next_incarnation(const Memory& before, std::int64_t realtime_ns);

class RecordFile {
 public:
  // Takes `folder`/`name`, or, when other agents of this host have it, `name`-1, -2 and so on; makes the folder. Nothing when
  // that is not possible: then the node goes without.
  static std::optional<RecordFile> claim(const std::filesystem::path& folder, const std::string& name);

  RecordFile(RecordFile&& other) noexcept;
  RecordFile& operator=(RecordFile&& other) noexcept;
  ~RecordFile();

  Memory read() const;
  const std::filesystem::path& path() const { return file_; }
  // Whole or not at all; not synced, since it need not survive the machine. False when it can't be written: what was there
  // before is void then and goes, so that no later process goes back on what this one promises from now on.
  bool write(const Memory::Self& self);
  // The job is over for this node. The lock's file goes with this object then.
  void forget();

 private:
  enum class Before { kNewFolder, kNothing, kAnAgent };  // what was there when it was claimed
  RecordFile(std::filesystem::path file, int lock, Before before)
      : file_(std::move(file)), lock_(lock), before_(before), lost_(before == Before::kAnAgent) {}
  std::filesystem::path file_;
  int lock_ = -1;
  Before before_;
  bool lost_;  // where there is no file there should be one
};

// $XDG_STATE_HOME/ddprun/nodes/<host>, else ~/.local/state/...; empty when there is no home.
std::filesystem::path record_folder();

}  // namespace ddprun::rendezvous
