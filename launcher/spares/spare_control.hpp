// The agent's end of one spare interpreter's control socket. It receives the spare's messages, and sends it a script with the
// descriptors that a fresh worker would inherit. launcher/workers/standby_processes.cpp has one for each spare. If it is
// closed, a waiting spare ends. One thread.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/system/descriptor.hpp"
#include "launcher/guardian/spawn.hpp"
#include "launcher/spares/spare_word.hpp"

namespace ddprun {

class SpareControl : public std::enable_shared_from_this<SpareControl> {
 public:
  using OnWord = std::function<void(const spares::Word&)>;

  // Creates the socket pair. Throws std::system_error.
  SpareControl(boost::asio::io_context& io, OnWord on_word);

  // The spare's end, passed to it at its start; begin() closes it here.
  int spares_end() const { return spares_end_.get(); }
  void begin();
  // When several spares are sent a script together, one of them (kForAll) checks whether an imported file has changed. The
  // others wait for tell_seen().
  enum class Look { kForAll, kWaits };
  // Sends the script to the spare. `board`: a file shared by all spares that are sent a script together; the one that checks
  // writes its results there. -1: there is no board, and this spare checks itself. Returns false if the spare has ended. Throws
  // std::system_error if the system has no memory or descriptors for it.
  bool hand_over(const SpawnRequest& request, const SpawnDescriptors& descriptors, Look look, int board);
  // Announces that the board has been written. A spare without this message checks the files itself after one second.
  void tell_seen();
  // False if closed, or if the spare has ended.
  bool is_open() const { return ours_.is_open(); }
  // Passes on all messages that have arrived.
  void drain();
  void close();

 private:
  void wait();
  enum class Read { kWord, kNothing, kEnd };
  Read read_one();

  Descriptor spares_end_;
  boost::asio::posix::stream_descriptor ours_;
  OnWord on_word_;
};

}  // namespace ddprun
