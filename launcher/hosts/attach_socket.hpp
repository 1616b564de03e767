// The Unix socket at which a new ssh connection takes over a running agent. The supervisor of the agent listens in the user's
// control folder. The process of the new connection passes its standard input and output, and then only waits.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/system/descriptor.hpp"

namespace ddprun {

struct AttachedConnection {
  Descriptor in;
  Descriptor out;
  Descriptor process;  // to the process that passed them; it ends when this is closed
};

class AttachSocket {
 public:
  // Listens under the name `id`. Throws UsageError if no folder for sockets can be used.
  explicit AttachSocket(const std::string& id);
  ~AttachSocket();
  AttachSocket(const AttachSocket&) = delete;
  AttachSocket& operator=(const AttachSocket&) = delete;

  // Descriptors to wait for; -1 if there is none.
  int listener() const { return listener_.get(); }
  int arriving() const { return arriving_.get(); }

  void accept();                                // call it when listener() is readable
  std::optional<AttachedConnection> receive();  // call it when arriving() is readable; nullopt: not complete yet

 private:
  std::filesystem::path path_;
  Descriptor listener_;
  Descriptor arriving_;  // to a process that passes its connection
  Descriptor in_;        // the first descriptor that it has passed
};

// Passes this process's standard input and output to the supervisor that listens under the name `id`. Returns when the
// supervisor no longer uses them. Returns false if no supervisor listens there.
bool attach_to_supervisor(const std::string& id);

}  // namespace ddprun
