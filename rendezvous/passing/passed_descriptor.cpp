#include "rendezvous/passing/passed_descriptor.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace ddprun {

bool pass_descriptor(int to, int fd, std::string_view bytes) {
  std::string text = "+" + std::string(bytes);  // not empty, since an empty message looks like a closed socket
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return ::sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(text.size());
}

std::optional<PassedDescriptor> receive_passed_descriptor(int from) {
  std::string text(kMaxPassedBytes + 1, '\0');
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = ::recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (count < 1) {
    if (count == 0) errno = 0;
    return std::nullopt;
  }
  PassedDescriptor passed;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    passed.descriptor = Descriptor(fd);
  }
  passed.bytes = text.substr(1, static_cast<std::size_t>(count) - 1);
  return passed;
}

}  // namespace ddprun
