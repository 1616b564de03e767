// The network interfaces of this machine, for --interface.
#pragma once

#include <string>

namespace ddprun {

// The numeric address of that interface: its first IPv4 address, else its first IPv6 address that is not link-local. Throws
// UsageError, which names the interfaces that have one.
std::string address_of_interface(const std::string& name);

}  // namespace ddprun
