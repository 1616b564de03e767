// Which addresses are this machine's. Called by network_start.cpp to find out whether this node is the one that the others were
// told of: before the job, since the resolver may take its time.
#pragma once

#include <string>

namespace ddprun {

// Whether `host`, a name or a number, is an address of this machine: whether a socket can be bound to it. False for a name that
// has no address here.
bool is_own_address(const std::string& host);

// The numeric address that `host` stands for; empty when it has none.
std::string numeric_address(const std::string& host);

// Whether it is an address and no name. Asks no resolver.
bool is_number(const std::string& host);

// 127.x or ::1. Asks no resolver.
bool is_loopback_number(const std::string& host);

}  // namespace ddprun
