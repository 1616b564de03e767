// Whose connection it is, when both of its ends are on this machine. store_process.cpp asks for each client.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

namespace ddprun::script_store {

struct PeerUser {
  enum class Is {
    kUser,
    kGone,     // nobody has the other end any more
    kUnknown,  // the kernel cannot say
  };
  Is is = Is::kUnknown;
  uid_t user = 0;
};

// `there` and `here` are the connection's two ends as this process sees them. Both must be addresses of this machine.
PeerUser user_of_peer(const sockaddr_storage& there, const sockaddr_storage& here);

}  // namespace ddprun::script_store
