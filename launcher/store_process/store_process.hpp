// The process that serves the store of scripts (launcher/script_store) through sockets of the round. The guardian forks it at
// the first connection, so a job whose workers need no store has only the cost of two listening sockets. It dies with the
// guardian, ignores every signal like the guardian, and is killed when the round is over on all nodes.
#pragma once

#include <string_view>
#include <vector>

namespace ddprun::script_store {

struct StoreSockets {
  // Listening sockets, or one Unix socket through which an agent that listens itself passes clients (rendezvous/passing).
  std::vector<int> listeners;
  int notes = -1;                  // a pipe for messages to people, one per line
  bool only_this_machine = false;  // clients on other machines are disconnected
};

// Runs in the child: keeps only these descriptors, and serves until it is killed.
[[noreturn]] void serve_scripts(const StoreSockets& sockets, int parent);

}  // namespace ddprun::script_store
