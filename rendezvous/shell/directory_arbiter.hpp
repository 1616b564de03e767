// A run directory that two nodes share, as their arbiter: a symbolic link in its folder `arbiter`, made once and for ever,
// names the node that may lead. symlink(2) fails where there is one, also over NFS, and needs no room for data. node_shell.hpp
// owns one.
//
// The run's lock (common/run_directory/run_lock.hpp) shows whether both nodes share the directory: each tries to take it, is
// refused, and reports the holder; the holder is refused by itself. From then on the folder stays open, so that a directory
// that is renamed or mounted over it later is not mistaken for it.
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

  // Tries the lock on another thread and waits for the answer, at most for `patience`. Returns what is known then, as
  // Hello::run_directory has it.
  std::uint64_t probe(milliseconds patience);

  void ask(const std::string& place, const std::string& self, milliseconds limit, Then then) override;

 private:
  struct State;

  boost::asio::io_context& io_;
  std::shared_ptr<State> state_;  // outlives this object while a file system does not answer
  FileQueue queue_;
};

}  // namespace ddprun::rendezvous
