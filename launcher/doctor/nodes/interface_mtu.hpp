// Reads the MTU (the size of the largest packet) of a network interface. If two nodes have different MTUs, a switch between
// them may drop large packets. Connections then open and small messages arrive, but gradients do not.
#pragma once

#include <optional>
#include <string>

namespace ddprun::doctor {

// Returns the MTU of the interface with the numeric address `address`. Returns nullopt if no interface of this machine has the
// address, or if it is the address of a loopback interface.
std::optional<int> mtu_of_address(const std::string& address);

}  // namespace ddprun::doctor
