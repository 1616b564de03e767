// Finds the addresses of this machine's network interfaces, for --interface and for the store of scripts.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddprun {

// Returns the numeric address of the interface `name`: its first IPv4 address, else its first IPv6 address that is not
// link-local. Throws UsageError with the names of usable interfaces.
std::string address_of_interface(const std::string& name);

// Returns all numeric addresses of the interface that has `address`, including `address`, but without link-local ones. The
// result is empty if no interface has `address`.
std::vector<std::string> addresses_of_same_interface(const std::string& address);

// Returns the first address of this machine at which other machines may reach it: IPv4, else IPv6, without loopback and
// link-local addresses. Returns nullopt if the machine has none.
std::optional<std::string> first_external_address();

}  // namespace ddprun
