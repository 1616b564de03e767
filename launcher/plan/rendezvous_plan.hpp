// torchrun's options for the rendezvous of nodes: backend, number of nodes, endpoint and timeouts. This header only defines
// values; plan_rendezvous.cpp reads them from the options. In a job on one machine the options are checked but not used.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launcher/machine/ports.hpp"

namespace ddprun {

struct RendezvousPlan {
  enum class Backend { kStatic, kC10d };
  Backend backend = Backend::kStatic;
  bool joins = false;       // set by `ddprun join`: this node joins a job whose coordinator is another node
  bool standalone = false;  // --standalone: one machine, and no other node may join
  int min_nodes = 1;
  int max_nodes = 1;
  // --node-rank, for static rendezvous; nullopt: the node that has the endpoint's address gets rank 0
  std::optional<int> node_rank;

  // Address at which the nodes meet: the master address with the static backend, or the endpoint with c10d. An empty host
  // means this machine.
  std::string host;
  int port = 0;  // 0: any free port
  // --local-addr: address at which other nodes reach this node; empty if it is determined automatically
  std::string local_addr;
  PortRange port_range{};  // --port-range

  // --arbiter: the etcd server that decides which of two nodes continues alone if they lose contact. Port 0: no arbiter.
  std::string arbiter_host;
  int arbiter_port = 0;

  // maximum time until min_nodes have joined; with static rendezvous, the key "timeout" sets it too
  std::chrono::milliseconds join_timeout{600'000};
  // time to wait for more nodes, up to max_nodes, after min_nodes have joined (torchrun: 30 s)
  std::chrono::milliseconds last_call_timeout{2'000};
  std::chrono::milliseconds heartbeat_timeout{5'000};
  bool exclude_failing_nodes = false;  // --exclude-failing-nodes
  bool force_new_job = false;          // --force-new-job: the user confirms that this job does not run on any machine any more
  bool many() const { return max_nodes > 1; }
  // c10d: true if this node is the coordinator; nullopt: true for the node that has the endpoint's address
  std::optional<bool> is_host;
};

}  // namespace ddprun
