// Implements an arbiter that uses a run directory which two nodes share. The arbiter decides which of the two nodes may lead.
// For each vote, a symbolic link in the directory's folder `arbiter` names the winner. A link is created once and never
// changed, because symlink(2) fails if the link exists, also over NFS. A link can be created even on a full disk. NodeShell
// (node_shell.hpp) uses this class.
//
// The lock of the run (common/run_directory/run_lock.hpp) shows whether two nodes share the directory. Each node tries to take
// the lock, fails, and reports the holder. Even the holder itself fails, because flock(2) also refuses a second lock of the
// same process. Two nodes that report the same holder share the directory. A different directory may later get the same path,
// by a rename or a mount. To avoid the use of a wrong directory, the node keeps the directory open until the node ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "common/system/file_queue.hpp"
#include "rendezvous/shell/arbiter_port.hpp"

namespace ddprun::rendezvous {

class DirectoryArbiter : public ArbiterPort {
 public:
  DirectoryArbiter(boost::asio::io_context& io, std::filesystem::path directory);
  ~DirectoryArbiter() override;

  // Tries to take the lock on another thread, and waits at most `patience` for the result. Returns the newest known holder of
  // the lock, as in NodeDescription::run_directory.
  std::uint64_t probe(milliseconds patience);

  void query(const std::string& key, const std::string& self, milliseconds limit, Then then) override;

 private:
  struct State;

  boost::asio::io_context& io_;
  std::shared_ptr<State> state_;  // may outlive this object if the file system does not respond
  FileQueue queue_;
};

}  // namespace ddprun::rendezvous
