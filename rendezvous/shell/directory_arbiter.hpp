// A run directory that two nodes share, as their arbiter. A symbolic link in its folder `arbiter` names the node that may lead;
// it is made once and never changed. symlink(2) fails if the link exists, also over NFS, and works on a full disk.
// node_shell.hpp owns one.
//
// The run's lock (common/run_directory/run_lock.hpp) shows whether both nodes share the directory. Each node tries to take the
// lock, is refused, and reports the holder; even the holder is refused, by its own lock. From then on the folder stays open. So
// a directory that is later renamed or mounted over it is not mistaken for it.
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

  // Tries the lock on another thread, and waits at most `patience` for the answer. Returns the result so far, as in
  // Hello::run_directory.
  std::uint64_t probe(milliseconds patience);

  void ask(const std::string& place, const std::string& self, milliseconds limit, Then then) override;

 private:
  struct State;

  boost::asio::io_context& io_;
  std::shared_ptr<State> state_;  // outlives this object while a file system does not respond
  FileQueue queue_;
};

}  // namespace ddprun::rendezvous
