// Implementation of peer_user.hpp: one query to the kernel's sock_diag, which finds a connection by its two ends. /proc/net/tcp
// has the same data, but takes milliseconds to read on a large machine.
#include "launcher/store_process/peer_user.hpp"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace ddprun::script_store {
namespace {

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 request;
};

// Writes one end of the connection into the request. Port and address stay in network byte order.
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
  // A link-local address is unique only together with its interface.
  if (there.ss_family == AF_INET6) question.request.id.idiag_if = reinterpret_cast<const sockaddr_in6&>(there).sin6_scope_id;

  const int socket = ::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
  if (socket < 0) return {};
  alignas(nlmsghdr) std::array<char, 4096> bytes{};
  ssize_t size = ::send(socket, &question, sizeof question, 0);
  if (size > 0) size = ::recv(socket, bytes.data(), bytes.size(), 0);  // the answer is available as soon as send() returns
  ::close(socket);

  constexpr auto kAnswer = static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg)));
  const auto* header = reinterpret_cast<const nlmsghdr*>(bytes.data());
  if (size < kAnswer || header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return {};
  const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  if (found->idiag_inode == 0) return {.is = PeerUser::Is::kGone};
  return {.is = PeerUser::Is::kUser, .user = found->idiag_uid};
}

}  // namespace ddprun::script_store
