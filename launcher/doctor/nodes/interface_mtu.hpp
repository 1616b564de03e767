// The MTU of a network interface: the size of the largest packet. If two nodes have different MTUs, and a switch between them
// drops the large packets, connections open and small messages arrive, but gradients do not.
#pragma once

#include <optional>
#include <string>

namespace ddprun::doctor {

// `address`: a numeric address of this machine. nullopt if no interface has it, or if that is a loopback interface.
std::optional<int> mtu_of_address(const std::string& address);

}  // namespace ddprun::doctor
