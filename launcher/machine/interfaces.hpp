// The network interfaces of this machine, for --interface and for the store of scripts.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

// The numeric address of that interface: its first IPv4 address, else its first IPv6 address that is not link-local. Throws
// UsageError, which names the interfaces that have one.
std::string address_of_interface(const std::string& name);

// The numeric addresses of the interface that has this one, itself included, without link-local ones. Empty when no interface
// has it.
std::vector<std::string> addresses_beside(const std::string& address);

}  // namespace ddprun
