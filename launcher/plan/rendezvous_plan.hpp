// What torchrun's options say about how agents find each other: backend, numbers of nodes, endpoint and timeouts. Values only:
// plan_rendezvous.cpp reads them from the options. On one machine the options are only checked.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launcher/machine/ports.hpp"

namespace ddprun {

struct RendezvousPlan {
  enum class Backend { kStatic, kC10d };
  Backend backend = Backend::kStatic;
  bool joins = false;       // ddprun join: another node coordinates
  bool standalone = false;  // one machine; no other node may join
  int min_nodes = 1;
  int max_nodes = 1;
  std::optional<int> node_rank;  // --node-rank, for static; nothing: the node that owns the endpoint's address is 0

  // Where agents meet: the master address and port of static, or the endpoint of c10d. An empty host means this machine.
  std::string host;
  int port = 0;            // 0: a free one
  std::string local_addr;  // --local-addr: the address at which others reach this node; empty: found out
  PortRange port_range{};  // --port-range

  // --arbiter: the server that decides between two nodes. Port 0: none.
  std::string arbiter_host;
  int arbiter_port = 0;

  std::chrono::milliseconds join_timeout{600'000};  // until min_nodes have joined; "timeout" of static
  std::chrono::milliseconds last_call_timeout{
      2'000};  // how long to wait for max_nodes after min_nodes have joined; torchrun: 30 s
  std::chrono::milliseconds heartbeat_timeout{5'000};
  bool force_new_job = false;  // the user says that no earlier start of this job runs on any machine
  bool many() const { return max_nodes > 1; }
  std::optional<bool> is_host;  // c10d: whether this node coordinates; nothing: if it owns the endpoint's address
};

}  // namespace ddprun
