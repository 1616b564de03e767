// Finds the user who owns the other end of a connection, if both ends are on this machine. store_process.cpp calls it for each
// client.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

namespace ddprun::script_store {

struct PeerUser {
  enum class Is {
    kUser,
    kGone,     // the other end has no owner any more
    kUnknown,  // the kernel does not report it
  };
  Is is = Is::kUnknown;
  uid_t user = 0;
};

// `there` and `here` are the two ends of the connection as seen by this process. Both must be addresses of this machine.
PeerUser user_of_peer(const sockaddr_storage& there, const sockaddr_storage& here);

}  // namespace ddprun::script_store
