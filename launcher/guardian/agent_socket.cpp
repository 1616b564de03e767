// Implementation of agent_socket.hpp with recvmsg(), send() and descriptors in SCM_RIGHTS messages.
#include "launcher/guardian/agent_socket.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/guardian/spawn.hpp"

namespace ddprun::guardian {

std::vector<char> ReceivedRequest::what_to_run() const {
  return text.empty() ? bytes_of(descriptors[static_cast<std::size_t>(descriptor_count - 1)].get()) : text;
}

int ReceivedRequest::channel() const {
  const int of_worker = descriptor_count - (text.empty() ? 1 : 0);
  return of_worker > 2 ? descriptors[2].get() : -1;
}

AgentSocket::AgentSocket(int socket) : socket_(socket) {
  ::fcntl(socket_, F_SETFL, O_NONBLOCK);
}

std::optional<ReceivedRequest> AgentSocket::receive() {
  ReceivedRequest received;
  std::array<iovec, 2> parts{{{&received.request, sizeof received.request}, {text_.get(), kMaxPacketBytes}}};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t n = 0;
  // If the agent was killed before it had read all notices, the kernel reports ECONNRESET once. After that, the agent's last
  // requests can still be read.
  do n = ::recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  if (n < 0 && errno == EAGAIN) return std::nullopt;
  if (n <= 0) {
    agent_gone_ = true;
    return std::nullopt;
  }
  if (const auto bytes = static_cast<std::size_t>(n); bytes > sizeof received.request) {
    received.text.assign(text_.get(), text_.get() + bytes - sizeof received.request);
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    received.descriptor_count = static_cast<int>((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::array<int, kMaxDescriptors> fds{};
    std::memcpy(fds.data(), CMSG_DATA(header), static_cast<std::size_t>(received.descriptor_count) * sizeof(int));
    for (std::size_t i = 0; i < static_cast<std::size_t>(received.descriptor_count); ++i)
      received.descriptors.at(i) = Descriptor(fds.at(i));
  }
  return received;
}

void AgentSocket::notify(const Notice& notice) {
  outbox_.push_back(notice);
}

void AgentSocket::flush() {
  while (!outbox_.empty()) {
    const ssize_t n = ::send(socket_, &outbox_.front(), sizeof(Notice), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    // If the socket is full, the event loop waits until the socket is writable. If the socket is closed, receive() detects
    // this.
    if (n < 0) return;
    outbox_.pop_front();
  }
}

}  // namespace ddprun::guardian
