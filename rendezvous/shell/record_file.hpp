// What a node must remember while its machine is up (rendezvous/member/record.hpp), with its identity, in a file of this host
// that only its user can read. One agent has it at a time; node_shell.hpp writes it. A record of before the machine's last
// start counts as none: by then the others have gone on without this node.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "rendezvous/member/record.hpp"

namespace ddprun::rendezvous {

struct RememberedNode {
  NodeId id{};
  std::uint64_t incarnation = 0;  // of the process that wrote it
  Record record{};
};

// Of a process that starts now: later than that of the one before it under the same identity, although the clock was set back.
std::uint64_t next_incarnation(const std::optional<RememberedNode>& before, std::int64_t realtime_ns);

class RecordFile {
 public:
  // Takes `folder`/`name`, or, when other agents of this host have it, `name`-1, -2 and so on; makes the folder. Nothing when
  // that is not possible: then the node goes without.
  static std::optional<RecordFile> claim(const std::filesystem::path& folder, const std::string& name);

  RecordFile(RecordFile&& other) noexcept;
  RecordFile& operator=(RecordFile&& other) noexcept;
  ~RecordFile();

  // Nothing when there is none, it is damaged, or the machine was started since.
  std::optional<RememberedNode> read() const;
  // Whole or not at all; not synced, since it need not survive the machine. False when it can't be written.
  bool write(const RememberedNode& node) const;
  // The job is over for this node. The lock's file goes with this object then.
  void forget() const;

 private:
  RecordFile(std::filesystem::path file, int lock) : file_(std::move(file)), lock_(lock) {}
  std::filesystem::path file_;
  int lock_ = -1;
};

// $XDG_STATE_HOME/ddprun/nodes/<host>, else ~/.local/state/...; empty when there is no home.
std::filesystem::path record_folder();

}  // namespace ddprun::rendezvous
