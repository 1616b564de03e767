// Finds the user whose process has the other end of a TCP connection on this machine. store_admission.cpp uses it to refuse
// clients of other users.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

namespace ddprun::script_store {

struct PeerUser {
  enum class Status {
    kUser,
    kGone,     // the other end is closed, so it has no owner
    kUnknown,  // the kernel does not report the owners of connections
  };
  Status status = Status::kUnknown;
  uid_t user = 0;
};

// Returns the user at the other end of a connection. `there` is the address and port of that end, and `here` is the address and
// port of our end. Both addresses must belong to this machine.
PeerUser user_of_peer(const sockaddr_storage& there, const sockaddr_storage& here);

}  // namespace ddprun::script_store
