// The socket is SOCK_SEQPACKET, so each read returns exactly one message.
#include "launcher/workers/spare_control.hpp"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace ddprun {

using boost::asio::posix::stream_descriptor;

SpareControl::SpareControl(boost::asio::io_context& io, OnMessage on_message) : ours_(io), on_message_(std::move(on_message)) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "creating the control socket of a spare interpreter");
  spares_end_ = Descriptor(ends[1]);
  ours_.assign(ends[0]);
}

void SpareControl::begin() {
  spares_end_ = Descriptor();
  wait();
}

bool SpareControl::hand_over(const SpawnRequest& request, const SpawnDescriptors& descriptors, ScanRole role, int scan_result) {
  if (!ours_.is_open()) return false;
  const Descriptor packed = memfd_of(pack(request));
  const std::array<int, 5> fds{packed.get(), descriptors.standard_output, descriptors.standard_error, descriptors.channel,
                               scan_result};
  const std::size_t bytes_of_fds = sizeof(int) * (scan_result < 0 ? fds.size() - 1 : fds.size());
  std::string text = role == ScanRole::kScans ? "look" : "wait";
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fds)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(bytes_of_fds);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(bytes_of_fds);
  std::memcpy(CMSG_DATA(header), fds.data(), bytes_of_fds);
  while (::sendmsg(ours_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET || errno == ETOOMANYREFS) return false;
    throw std::system_error(errno, std::generic_category(), "sending a script to a spare interpreter");
  }
  return true;
}

void SpareControl::announce_scan() {
  static constexpr std::string_view kScanDone = "seen";
  // Errors are ignored. Either the spare has ended, or it checks the files itself after its timeout.
  if (ours_.is_open()) ::send(ours_.native_handle(), kScanDone.data(), kScanDone.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void SpareControl::close() {
  boost::system::error_code ignored;
  ours_.close(ignored);
}

void SpareControl::wait() {
  ours_.async_wait(stream_descriptor::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
    if (error) return;
    if (self->read_one() == Read::kEnd) return self->close();
    if (self->ours_.is_open()) self->wait();
  });
}

void SpareControl::drain() {
  while (ours_.is_open() && read_one() == Read::kMessage) {
  }
}

SpareControl::Read SpareControl::read_one() {
  std::array<char, 4096> packet;
  const auto receive = [&] { return ::recv(ours_.native_handle(), packet.data(), packet.size(), MSG_DONTWAIT); };
  ssize_t n = receive();
  // The kernel resets the socket if a spare ends before it has read all messages of the agent. recv() then returns ECONNRESET
  // once. After that it returns the last messages of the spare, so we read again.
  if (n < 0 && errno == ECONNRESET) n = receive();
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Read::kNothing;
  if (n <= 0) return Read::kEnd;
  if (const auto message = spares::parse_message({packet.data(), static_cast<std::size_t>(n)})) on_message_(*message);
  return Read::kMessage;
}

}  // namespace ddprun
