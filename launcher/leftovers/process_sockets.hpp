// Finds out which TCP sockets another process has: sockets that listen, and connections with a given port.
//
// The problem is the time. /proc/PID/net/tcp lists all sockets of the machine. To print it, the kernel walks a hash table with
// 262,144 entries on a machine of 24 GiB: 7 ms for IPv4, and again for IPv6. A new round had to wait for this scan if a
// process of the old round was still exiting. So each socket is copied into this process instead (pidfd_getfd, Linux 5.6).
// This process then queries the copy for its addresses and closes it. This takes a few microseconds, and does not affect the
// connection. The kernel allows it for descendants with the same user. If the kernel refuses, as in some containers, the
// tables are read.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddprun::guardian {

struct SocketDescriptor {
  int number = -1;
  std::string inode{};  // the number in the link "socket:[4711]"
};

struct TcpUse {
  bool listens = false;    // has a listening socket
  bool uses_port = false;  // true if the process has a connection with `port` at either end
};

// `sockets` are descriptors of the process `pid`. With `port` 0, uses_port stays false. Descriptors that have been closed in
// the meantime count as unused.
TcpUse tcp_use(pid_t pid, const std::vector<SocketDescriptor>& sockets, int port);

// ---- parts, for tests ----

// Returns the same result as tcp_use(), but reads the socket tables of the process's network namespace.
TcpUse tcp_use_by_tables(pid_t pid, const std::vector<SocketDescriptor>& sockets, int port);
// Returns the inodes of TCP sockets in the text of /proc/net/tcp or tcp6. If `port` is 0, these are the listening sockets.
// Otherwise they are the connected sockets with that port at either end.
std::vector<std::string> tcp_inodes(const std::string& table, int port);

}  // namespace ddprun::guardian
