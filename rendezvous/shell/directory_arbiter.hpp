// A run directory that two nodes share, as their arbiter: a link in its folder `arbiter`, made once and for ever, names the
// node that goes on. Making a link fails where there is one, also over NFS, and needs no room for data. node_shell.hpp owns
// one.
//
// That both nodes share it shows in the run's lock (common/run_directory/run_lock.hpp): each tries it, is refused, and tells
// who has it; the node that holds it is refused by itself. From then on the folder stays open, so that what is renamed, removed
// or mounted over later is not taken for it.
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

  // Tries the lock, on another thread, and waits that long for the answer. What is known of it then: Hello::run_directory.
  std::uint64_t look(milliseconds patience);

  void ask(const std::string& place, const std::string& self, milliseconds limit, Then then) override;

 private:
  struct State;

  boost::asio::io_context& io_;
  std::shared_ptr<State> state_;  // a file system that does not answer outlasts this
  FileQueue queue_;
};

}  // namespace ddprun::rendezvous
