// Judges names and interfaces of this node. In a job on one node, only the variables that name an interface matter: Gloo and
// NCCL read these variables in every job. The code is pure: no I/O, no clock.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/doctor/verdicts/check.hpp"
#include "launcher/doctor/verdicts/job_needs.hpp"

namespace ddprun::doctor {

// A name and its addresses in numeric form. The list of addresses is empty if the name does not resolve.
struct NameFacts {
  std::string name{};
  std::vector<std::string> addresses{};
  bool is_local = false;  // one of the addresses belongs to this machine
};

// Judges the host name. Gloo uses its address, unless GLOO_SOCKET_IFNAME (`gloo_interface`) or --interface names an interface.
Checks judge_host_name(const NameFacts& facts, const std::optional<std::string>& gloo_interface, const JobNeeds& needs);

// Returns true if no name server can ever have an address for the name: the name is malformed (RFC 1123), looks like an IPv4
// address without being one, or ends in ".invalid" (RFC 6761).
bool can_never_resolve(std::string_view name);

// Judges the host of --master-addr or --rdzv-endpoint. `facts.name` must not be empty. A name without an address is only a
// warning. Kubernetes adds the name of the first pod to DNS when that pod starts, and a starting agent waits for this. If
// can_never_resolve() is true, the name is an error.
Checks judge_meeting_host(const NameFacts& facts, const JobNeeds& needs);

struct Interface {
  std::string name{};
  bool is_up = true;
  bool is_loopback = false;
  bool has_address = true;  // an IPv4 or IPv6 address that other machines may use
};

struct InfinibandDevice {
  std::string name{};
  int ports = 1;
  int active_ports = 1;
};

struct InterfaceFacts {
  std::vector<Interface> interfaces{};
  std::vector<InfinibandDevice> infiniband{};
  std::optional<std::string> gloo{};      // GLOO_SOCKET_IFNAME
  std::optional<std::string> nccl{};      // NCCL_SOCKET_IFNAME
  std::optional<std::string> nccl_hca{};  // NCCL_IB_HCA
};
Checks judge_interfaces(const InterfaceFacts& facts, const JobNeeds& needs);

// Returns true if NCCL's selection includes this name. "eth,ib" selects by prefix, "=eth0" exactly, and "^docker" excludes. A
// port after a colon ("mlx5_0:1") is ignored. Source: NCCL's user guide, NCCL_SOCKET_IFNAME and NCCL_IB_HCA.
bool nccl_selects(std::string_view selection, std::string_view name);

}  // namespace ddprun::doctor
