// Implementation of peer_user.hpp. It sends the kernel a sock_diag query for one connection, with the addresses of both ends.
// /proc/net/tcp has the same data, but reading it takes milliseconds on a machine with many connections.
#include "launcher/tcp_store/peer_user.hpp"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "common/system/descriptor.hpp"

namespace ddprun::script_store {
namespace {

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 request;
};

// Copies the port and the address of one end of the connection into the query, in network byte order.
void name_end(const sockaddr_storage& end, __be16& port, __be32 (&address)[4]) {
  if (end.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(end);
    port = v4.sin_port;
    std::memcpy(address, &v4.sin_addr, sizeof v4.sin_addr);
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(end);
    port = v6.sin6_port;
    std::memcpy(address, &v6.sin6_addr, sizeof v6.sin6_addr);
  }
}

}  // namespace

PeerUser user_of_peer(const sockaddr_storage& there, const sockaddr_storage& here) {
  Question question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_family = static_cast<__u8>(there.ss_family);
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = ~0U;
  question.request.id.idiag_cookie[0] = question.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  name_end(there, question.request.id.idiag_sport, question.request.id.idiag_src);
  name_end(here, question.request.id.idiag_dport, question.request.id.idiag_dst);
  // A link-local IPv6 address identifies a host only together with an interface.
  if (there.ss_family == AF_INET6) question.request.id.idiag_if = reinterpret_cast<const sockaddr_in6&>(there).sin6_scope_id;

  const Descriptor socket(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG));
  alignas(nlmsghdr) std::array<char, 4096> bytes{};
  ssize_t size = ::send(socket.get(), &question, sizeof question, 0);
  // The kernel has queued the reply when send() returns, so recv() does not wait.
  if (size > 0) size = ::recv(socket.get(), bytes.data(), bytes.size(), 0);

  constexpr auto kAnswer = static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg)));
  const auto* header = reinterpret_cast<const nlmsghdr*>(bytes.data());
  if (size < kAnswer || header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return {};
  const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  if (found->idiag_inode == 0) return {.status = PeerUser::Status::kGone};
  return {.status = PeerUser::Status::kUser, .user = found->idiag_uid};
}

}  // namespace ddprun::script_store
