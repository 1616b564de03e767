#include "launcher/tcp_store/store_admission.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/system/descriptor.hpp"
#include "launcher/tcp_store/peer_user.hpp"

namespace ddprun::script_store {
namespace {

bool is_loopback(const in6_addr& address) {
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

// Returns true if the client runs on this machine: it connects from loopback, or from the same address to which it connects.
bool is_of_this_machine(const StorePeer& peer, const StorePeer& here) {
  return is_loopback(peer.address) || std::memcmp(&here.address, &peer.address, sizeof peer.address) == 0;
}

}  // namespace

StorePeer peer_of(const sockaddr_storage& from) {
  StorePeer peer;
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    peer.port = ntohs(v4.sin_port);
    peer.address.s6_addr[10] = peer.address.s6_addr[11] = 0xff;
    std::memcpy(&peer.address.s6_addr[12], &v4.sin_addr, sizeof v4.sin_addr);
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
    peer.port = ntohs(v6.sin6_port);
    peer.address = v6.sin6_addr;
  }
  const bool v4 = IN6_IS_ADDR_V4MAPPED(&peer.address);
  ::inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? &peer.address.s6_addr[12] : peer.address.s6_addr, peer.text.data(),
              static_cast<socklen_t>(peer.text.size()));
  return peer;
}

// Tests whether the kernel reports the owners of sockets. The test uses a socket of this process, whose owner is known. The
// socket connects to itself on loopback and never listens, since with --port-range ddprun may listen only on ports of the
// range.
bool probe_user_reports() {
  for (const int family : {AF_INET, AF_INET6}) {
    const Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) continue;
    sockaddr_storage own{};
    own.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in&>(own).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      reinterpret_cast<sockaddr_in6&>(own).sin6_addr = in6addr_loopback;
    }
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::bind(socket.get(), address, size) != 0 || ::getsockname(socket.get(), address, &size) != 0) continue;
    // The kernel knows the socket from the first packet on, so the result of connect() does not matter.
    if (::connect(socket.get(), address, size) != 0 && errno != EINPROGRESS) continue;
    if (user_of_peer(own, own).status == PeerUser::Status::kUser) return true;
  }
  return false;
}

std::string refusal_of(int socket, const sockaddr_storage& from, bool only_this_machine, bool kernel_reports_users) {
  sockaddr_storage here{};
  socklen_t size = sizeof here;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &size) != 0) return "the client has already disconnected";
  // A client on this machine may also use another address of the machine. Then the kernel reports an owner for it.
  const bool local = is_loopback(peer_of(here).address) || is_of_this_machine(peer_of(from), peer_of(here));
  const PeerUser peer = user_of_peer(from, here);
  if (!local && peer.status != PeerUser::Status::kUser)
    return only_this_machine ? "the client connects from another machine, but this job runs on a single machine" : "";
  if (peer.status == PeerUser::Status::kGone || (peer.status == PeerUser::Status::kUnknown && kernel_reports_users))
    return "the client has already disconnected";
  if (peer.status == PeerUser::Status::kUnknown || peer.user == ::geteuid() || peer.user == 0) return "";
  return "the client belongs to user " + std::to_string(peer.user) + ", but this job belongs to user " +
         std::to_string(::geteuid()) + " (--agent-store off accepts all users)";
}

}  // namespace ddprun::script_store
