// The agent's end of the control socket of one spare interpreter. It receives the spare's messages. It also sends the spare a
// script to run, with the descriptors that a new worker process would inherit. launcher/workers/standby_processes.cpp owns one
// for each spare. A waiting spare exits when this end is closed. The class runs on one thread.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/system/descriptor.hpp"
#include "launcher/guardian/spawn.hpp"
#include "launcher/workers/spare_message.hpp"

namespace ddprun {

class SpareControl : public std::enable_shared_from_this<SpareControl> {
 public:
  using OnMessage = std::function<void(const spares::Message&)>;

  // Creates the socket pair. Throws std::system_error.
  SpareControl(boost::asio::io_context& io, OnMessage on_message);

  // Returns the spare's end of the socket, which the spare inherits at its start. begin() closes this end in the agent and
  // starts reading the other end.
  int spares_end() const { return spares_end_.get(); }
  void begin();
  // Several spares may get a script at the same time. Then one of them (kScans) checks whether the files that spares have
  // imported were changed since. The others wait for announce_scan() and use the results of this check.
  enum class ScanRole { kScans, kWaitsForScan };
  // Sends the script to the spare. `scan_result` is a file to which the checking spare writes its results for the other spares.
  // -1 means that such a file could not be created, so this spare checks the files itself. Returns false if the spare has
  // ended. Throws std::system_error if the system has no memory or descriptors left.
  bool hand_over(const SpawnRequest& request, const SpawnDescriptors& descriptors, ScanRole role, int scan_result);
  // Sends the spare a message that the scan results are complete. A spare that waits longer than one second for this message
  // checks the files itself.
  void announce_scan();
  // Returns false after close(), or after the spare has ended.
  bool is_open() const { return ours_.is_open(); }
  // Reads all messages that have arrived and passes them to `on_message`.
  void drain();
  void close();

 private:
  void wait();
  enum class Read { kMessage, kNothing, kEnd };
  Read read_one();

  Descriptor spares_end_;
  boost::asio::posix::stream_descriptor ours_;
  OnMessage on_message_;
};

}  // namespace ddprun
