// How agents are to find each other, as torchrun's options say it: backend, counts of nodes, endpoint and timeouts. Values
// only: plan_rendezvous.cpp reads them from the options; on one machine only the checks count, since there is nobody to meet.
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
  bool standalone = false;  // one machine, nobody else may join
  int min_nodes = 1;
  int max_nodes = 1;
  std::optional<int> node_rank;  // --node-rank under static; nothing: the owner of the endpoint's address is 0

  // Where agents meet: static's master address and port, c10d's endpoint. Empty host: nobody said, so it is this machine.
  std::string host;
  int port = 0;            // 0: a free one
  std::string local_addr;  // --local-addr: the address this node is reached at; empty: found out
  PortRange port_range{};  // --port-range

  // --arbiter: who decides between two nodes. Port 0: nobody.
  std::string arbiter_host;
  int arbiter_port = 0;

  std::chrono::milliseconds join_timeout{600'000};     // until min_nodes are there; "timeout" under static
  std::chrono::milliseconds last_call_timeout{2'000};  // from min_nodes on, waiting for max_nodes; torchrun: 30 s
  std::chrono::milliseconds heartbeat_timeout{5'000};
  bool force_new_job = false;  // the user's word that no earlier start of this job runs on any machine
  bool many() const { return max_nodes > 1; }
  std::optional<bool> is_host;  // c10d: whether this node coordinates; nothing: the owner of the endpoint's address
};

}  // namespace ddprun
