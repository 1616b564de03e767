// Determines which addresses belong to this machine. network_start.cpp uses it to find out whether the user's endpoint names
// this node. It is called before the job starts, since the resolver may be slow.
#pragma once

#include <string>

namespace ddprun {

// Returns whether `host`, a name or a number, is an address of this machine: that is, whether a socket can be bound to it.
// Returns false for a name without any address.
bool is_local_address(const std::string& host);

// Returns the numeric address of `host`; empty if it has none.
std::string numeric_address(const std::string& host);

// Returns whether `host` is a numeric address. Never queries a resolver.
bool is_number(const std::string& host);

// Returns whether `host` is 127.x or ::1. Never queries a resolver.
bool is_loopback_number(const std::string& host);

}  // namespace ddprun
