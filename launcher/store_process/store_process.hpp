// The process that serves scripts their store (launcher/script_store) through sockets of the round. The guardian forks it when
// the first client knocks, so a job whose workers need no store pays for two listening sockets only. It dies with the guardian,
// ignores every signal as that does, and is killed when the round is over on all nodes.
#pragma once

#include <string_view>
#include <vector>

namespace ddprun::script_store {

struct StoreSockets {
  // Listening sockets, or one Unix socket through which an agent that listens itself passes clients (rendezvous/passing).
  std::vector<int> listeners;
  int notes = -1;                  // a pipe for what people should read, a line each
  bool only_this_machine = false;  // clients of other machines are cut off
};

// In the child: keeps these descriptors alone, and serves until it is killed.
[[noreturn]] void serve_scripts(const StoreSockets& sockets, int parent);

}  // namespace ddprun::script_store
