#include "launcher/leftovers/process_sockets.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>

#include "common/system/descriptor.hpp"
#include "launcher/machine/kernel_file.hpp"

namespace ddprun::guardian {
namespace {

int option_of(int socket, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

// Returns the port of one end of a connection; 0 if the socket has none. `query` is getsockname or getpeername.
int port_of(int socket, int (*query)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (query(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  sockaddr_in6 v6{};
  sockaddr_in v4{};
  std::memcpy(&v6, &address, sizeof v6);
  std::memcpy(&v4, &address, sizeof v4);
  return ntohs(address.ss_family == AF_INET6 ? v6.sin6_port : address.ss_family == AF_INET ? v4.sin_port : 0);
}

void add_use(int socket, int port, TcpUse& use) {
  if (option_of(socket, SO_PROTOCOL) != IPPROTO_TCP) return;
  if (option_of(socket, SO_ACCEPTCONN) == 1) {
    use.listens = true;
  } else if (port != 0) {
    use.uses_port = use.uses_port || port_of(socket, ::getsockname) == port || port_of(socket, ::getpeername) == port;
  }
}

// Copies the sockets of process `pid` into this process and reads their addresses. Returns nullopt if the kernel does not allow
// the copies.
std::optional<TcpUse> tcp_use_by_copies(pid_t pid, const std::vector<SocketDescriptor>& sockets, int port) {
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (process.get() < 0) return errno == ESRCH ? std::optional(TcpUse{}) : std::nullopt;
  TcpUse use;
  for (const SocketDescriptor& one : sockets) {
    const Descriptor copy(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), one.number, 0)));
    if (copy.get() >= 0) {
      add_use(copy.get(), port, use);
    } else if (errno != EBADF && errno != ESRCH) {
      return std::nullopt;
    }
  }
  return use;
}

bool any_has_inode(const std::vector<SocketDescriptor>& sockets, const std::vector<std::string>& inodes) {
  return std::any_of(sockets.begin(), sockets.end(), [&](const SocketDescriptor& one) {
    return std::find(inodes.begin(), inodes.end(), one.inode) != inodes.end();
  });
}

}  // namespace

std::vector<std::string> tcp_inodes(const std::string& table, int port) {
  std::vector<std::string> inodes;
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);  // skips the heading
  while (std::getline(lines, line)) {
    std::istringstream row(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    row >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    if (inode.empty()) continue;
    const auto port_in = [](const std::string& address) {
      return std::strtol(address.c_str() + address.rfind(':') + 1, nullptr, 16);
    };
    const bool listens = state == "0A";
    const bool wanted = port == 0 ? listens : !listens && (port_in(local) == port || port_in(remote) == port);
    if (wanted) inodes.push_back(inode);
  }
  return inodes;
}

TcpUse tcp_use_by_tables(pid_t pid, const std::vector<SocketDescriptor>& sockets, int port) {
  TcpUse use;
  for (const char* const name : {"/net/tcp", "/net/tcp6"}) {
    const std::string table = read_kernel_file(("/proc/" + std::to_string(pid) + name).c_str()).value_or("");
    use.listens = use.listens || any_has_inode(sockets, tcp_inodes(table, 0));
    use.uses_port = use.uses_port || (port != 0 && any_has_inode(sockets, tcp_inodes(table, port)));
  }
  return use;
}

TcpUse tcp_use(pid_t pid, const std::vector<SocketDescriptor>& sockets, int port) {
  if (sockets.empty()) return {};
  const auto use = tcp_use_by_copies(pid, sockets, port);
  return use ? *use : tcp_use_by_tables(pid, sockets, port);
}

}  // namespace ddprun::guardian
