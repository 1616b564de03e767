// Decides which connections the store of scripts accepts. From this machine it accepts only clients of the job's own user and
// of root; the kernel reports the user of a local client (peer_user.hpp). From other machines it accepts all clients if the job
// has several nodes, and otherwise none. store_process.cpp calls refusal_of() for each new connection.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <string>

namespace ddprun::script_store {

// The address and port of a client. `text` is the address for messages, in IPv4 notation for an IPv4 client of an IPv6 socket.
struct StorePeer {
  std::array<char, INET6_ADDRSTRLEN> text{};
  int port = 0;
  in6_addr address{};  // IPv4 addresses are stored as IPv4-mapped IPv6 addresses
};

StorePeer peer_of(const sockaddr_storage& from);

// Returns true if the kernel reports the owners of sockets to this process.
bool probe_user_reports();

// Returns the reason to refuse this connection, or "" to accept it. If the kernel reports owners but has none for this client,
// the client has already closed its end. Its user is then unknown, so the connection is refused.
std::string refusal_of(int socket, const sockaddr_storage& from, bool only_this_machine, bool kernel_reports_users);

}  // namespace ddprun::script_store
