// The agent's end of one spare interpreter's control socket: it hears the spare's words, and hands a script over to it with
// the descriptors that a fresh worker would be born with. launcher/workers/standby_processes.cpp has one for each spare. When
// it is closed, a spare that waits ends. One thread.
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

  // Makes the socket pair. Throws std::system_error.
  SpareControl(boost::asio::io_context& io, OnWord on_word);

  // The spare's end, for its start; closed here by begin().
  int spares_end() const { return spares_end_.get(); }
  void begin();
  // Of spares that are handed a script together one looks for all whether a file has changed; the others wait for tell_seen().
  enum class Look { kForAll, kWaits };
  // Gives the script to the spare. `board`: a file of all that are handed one together, where the one that looks writes what it
  // has seen; -1: there is none, and this one looks for itself. False: the spare is gone. Throws std::system_error when the
  // system has no memory or descriptors for it.
  bool hand_over(const SpawnRequest& request, const SpawnDescriptors& descriptors, Look look, int board);
  // The board is written. A spare that is not told looks itself, a second later.
  void tell_seen();
  // False: closed, or the spare has ended.
  bool is_open() const { return ours_.is_open(); }
  // Passes on all words that have arrived.
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
