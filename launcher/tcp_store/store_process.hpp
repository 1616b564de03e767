// The process that serves the store of scripts (script_store.hpp) on the listening sockets of a round. The guardian (the parent
// process of the workers) forks it at the first connection. So if no worker uses the store, a job only has the listening
// sockets. The process dies with the guardian, and ignores the same signals as the guardian. The guardian kills it when the
// round has ended on all nodes.
#pragma once

#include <string_view>
#include <vector>

namespace ddprun::script_store {

struct StoreSockets {
  // The listening sockets. If the agent itself listens, this is one Unix socket through which the agent passes clients
  // (rendezvous/passing).
  std::vector<int> listeners;
  int notes = -1;                  // write end of a pipe for messages to the user, one message per line
  bool only_this_machine = false;  // true: clients on other machines are refused
};

// Runs in the forked child. Closes all descriptors except the descriptors in `sockets`, and serves clients until it is killed.
// `parent` is the pid of the guardian.
[[noreturn]] void serve_scripts(const StoreSockets& sockets, int parent);

}  // namespace ddprun::script_store
