#include "launcher/stragglers/worker_links.hpp"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "common/system/descriptor.hpp"

namespace ddprun {
namespace {

constexpr std::uint32_t kEstablished = 1;  // TCP_ESTABLISHED in the kernel's tcp_states.h
constexpr std::uint32_t kRecentlySentMs = 2000;

std::set<std::uint32_t> sockets_of(pid_t pid) {
  std::set<std::uint32_t> inodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    constexpr std::string_view kMark = "socket:[";
    if (!target.starts_with(kMark)) continue;
    std::uint32_t inode = 0;
    std::from_chars(target.data() + kMark.size(), target.data() + target.size(), inode);
    inodes.insert(inode);
  }
  return inodes;
}

std::string text_of_address(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = {};
  return ::inet_ntop(family, address, text, sizeof text) == nullptr ? "" : text;
}

bool is_of_this_machine(const RankLink& link) {
  return link.from == link.to || link.to.starts_with("127.") || link.to == "::1";
}

// Adds the connection in this netlink message to `links` if it belongs to the process, leads to another machine and was used
// recently.
void add_link(const nlmsghdr& header, const std::set<std::uint32_t>& inodes, std::vector<RankLink>& links) {
  if (header.nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) return;
  const auto* const message = static_cast<const inet_diag_msg*>(NLMSG_DATA(&header));
  if (!inodes.contains(message->idiag_inode)) return;
  RankLink link{.from = text_of_address(message->idiag_family, message->id.idiag_src),
                .to = text_of_address(message->idiag_family, message->id.idiag_dst)};
  if (is_of_this_machine(link)) return;
  auto bytes_left = static_cast<int>(header.nlmsg_len - NLMSG_LENGTH(sizeof *message));
  const auto* attribute = reinterpret_cast<const rtattr*>(message + 1);
  for (; RTA_OK(attribute, bytes_left); attribute = RTA_NEXT(attribute, bytes_left)) {
    if (attribute->rta_type != INET_DIAG_INFO) continue;
    tcp_info info{};
    std::memcpy(&info, RTA_DATA(attribute), std::min<std::size_t>(sizeof info, RTA_PAYLOAD(attribute)));
    link.round_trip_s = static_cast<double>(info.tcpi_rtt) / 1e6;
    if (info.tcpi_last_data_sent <= kRecentlySentMs && info.tcpi_rtt > 0) links.push_back(link);
  }
}

void add_links(std::uint8_t family, const std::set<std::uint32_t>& inodes, std::vector<RankLink>& links) {
  const Descriptor socket(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (socket.get() < 0) return;
  const timeval timeout{.tv_sec = 0, .tv_usec = 100'000};  // the kernel answers immediately or not at all
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  question.request.sdiag_family = family;
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_ext = 1 << (INET_DIAG_INFO - 1);
  question.request.idiag_states = 1U << kEstablished;
  if (::send(socket.get(), &question, sizeof question, 0) < 0) return;
  alignas(nlmsghdr) std::array<char, 32768> answer{};
  while (true) {
    const ssize_t received = ::recv(socket.get(), answer.data(), answer.size(), 0);
    if (received <= 0) return;
    ssize_t bytes_left = received;
    for (auto* header = reinterpret_cast<nlmsghdr*>(answer.data()); NLMSG_OK(header, bytes_left);
         header = NLMSG_NEXT(header, bytes_left)) {
      if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR) return;
      add_link(*header, inodes, links);
    }
  }
}

}  // namespace

std::vector<RankLink> links_of_process(pid_t pid) {
  std::vector<RankLink> links;
  const std::set<std::uint32_t> inodes = sockets_of(pid);
  if (inodes.empty()) return links;
  add_links(AF_INET, inodes, links);
  add_links(AF_INET6, inodes, links);
  return links;
}

}  // namespace ddprun
