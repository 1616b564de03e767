// torchrun's options about how agents find each other: backend, numbers of nodes, endpoint and timeouts. Values only:
// plan_rendezvous.cpp reads them from the options. On a single machine the options are only checked.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launcher/machine/ports.hpp"

namespace ddprun {

struct RendezvousPlan {
  enum class Backend { kStatic, kC10d };
  Backend backend = Backend::kStatic;
  bool joins = false;       // set by ddprun join: another node is the coordinator
  bool standalone = false;  // single machine; no other node may join
  int min_nodes = 1;
  int max_nodes = 1;
  std::optional<int> node_rank;  // --node-rank, for static; nullopt: the node that owns the endpoint's address gets rank 0

  // The meeting point of the agents: the master address and port of static, or the endpoint of c10d. An empty host means this
  // machine.
  std::string host;
  int port = 0;            // 0: any free port
  std::string local_addr;  // --local-addr: the address at which other nodes reach this one; empty: determined automatically
  PortRange port_range{};  // --port-range

  // --arbiter: the server that decides between two nodes. Port 0: no arbiter.
  std::string arbiter_host;
  int arbiter_port = 0;

  std::chrono::milliseconds join_timeout{600'000};     // time limit until min_nodes have joined; "timeout" of static
  std::chrono::milliseconds last_call_timeout{2'000};  // time to wait for max_nodes after min_nodes have joined; torchrun: 30 s
  std::chrono::milliseconds heartbeat_timeout{5'000};
  bool force_new_job = false;  // the user confirms that no earlier start of this job is running on any machine
  bool many() const { return max_nodes > 1; }
  std::optional<bool> is_host;  // c10d: whether this node is the coordinator; nullopt: it is if it owns the endpoint's address
};

}  // namespace ddprun
