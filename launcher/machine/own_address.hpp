// Which addresses are this machine's. network_start.cpp asks whether this node is the one whose address the user gave to all
// nodes: before the job starts, since the resolver may take its time.
#pragma once

#include <string>

namespace ddprun {

// Whether `host`, a name or a number, is an address of this machine: whether a socket can be bound to it. False for a name
// without any address.
bool is_own_address(const std::string& host);

// The numeric address of `host`; empty when it has none.
std::string numeric_address(const std::string& host);

// Whether `host` is a numeric address. Never asks a resolver.
bool is_number(const std::string& host);

// Whether `host` is 127.x or ::1. Never asks a resolver.
bool is_loopback_number(const std::string& host);

}  // namespace ddprun
