// The network interfaces of this machine, for --interface and for the store of scripts.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// The numeric address of that interface: its first IPv4 address, else its first IPv6 address that is not link-local. Throws
// UsageError with the names of usable interfaces.
std::string address_of_interface(const std::string& name);

// All numeric addresses of the interface that has `address`, including `address`, but without link-local ones. Empty if no
// interface has `address`.
std::vector<std::string> addresses_of_same_interface(const std::string& address);

// The first address of this machine at which other machines may reach it: IPv4, else IPv6, without loopback and link-local
// addresses. nullopt if the machine has none.
std::optional<std::string> first_external_address();

}  // namespace ddprun
