// A Unix socket through which a new ssh connection takes over a running agent. The agent's supervisor listens on the socket,
// which is in the user's control folder. The process that the new connection has started sends the descriptors of its standard
// input and output to the supervisor. Then it waits until the supervisor closes the connection.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/system/descriptor.hpp"

namespace ddprun {

struct AttachedConnection {
  Descriptor in;
  Descriptor out;
  Descriptor process;  // socket to the process that sent `in` and `out`; that process ends when this socket is closed
};

class AttachSocket {
 public:
  // Listens under the name `id`. Throws UsageError if no folder for sockets can be used.
  explicit AttachSocket(const std::string& id);
  ~AttachSocket();
  AttachSocket(const AttachSocket&) = delete;
  AttachSocket& operator=(const AttachSocket&) = delete;

  // Descriptors that the event loop must poll for input; -1 if there is none.
  int listener() const { return listener_.get(); }
  int arriving() const { return arriving_.get(); }

  void accept();                                // call it when listener() is readable
  std::optional<AttachedConnection> receive();  // call it when arriving() is readable; nullopt: not complete yet

 private:
  std::filesystem::path path_;
  Descriptor listener_;
  Descriptor arriving_;  // socket to a process that is sending its two descriptors
  Descriptor in_;        // the first descriptor that has arrived over `arriving_`
};

// Sends the descriptors of this process's standard input and output to the supervisor that listens under the name `id`.
// Returns when the supervisor no longer uses them. Returns false if no supervisor listens under this name.
bool attach_to_supervisor(const std::string& id);

}  // namespace ddprun
