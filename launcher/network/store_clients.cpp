#include "launcher/network/store_clients.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "common/base/error.hpp"
#include "rendezvous/passing/passed_descriptor.hpp"

namespace ddprun {
namespace {

using boost::asio::posix::stream_descriptor;

// The first byte of a store query is a small number. Text protocols start with a printable character, which is larger.
constexpr unsigned char kLargestQuery = 31;
constexpr std::size_t kMaxWaitingClients = 1024;

// Returns the maximum number of waiting clients. Any host can connect, so clients may use at most a quarter of the agent's
// descriptors.
std::size_t max_waiting_clients() {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur == RLIM_INFINITY) return kMaxWaitingClients;
  return std::clamp<std::size_t>(descriptors.rlim_cur / 4, 1, kMaxWaitingClients);
}

std::string local_end_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  boost::asio::ip::tcp::endpoint endpoint(
      address.ss_family == AF_INET6 ? boost::asio::ip::tcp::v6() : boost::asio::ip::tcp::v4(), 0);
  std::memcpy(endpoint.data(), &address, endpoint.size());
  auto ip = endpoint.address();
  if (ip.is_v6() && ip.to_v6().is_v4_mapped()) ip = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, ip.to_v6());
  return ip.to_string();
}

// The listener sets short timeouts for connections of agents. The connection of a store client gets TCP's defaults, as if the
// client had connected to a TCPStore in rank 0.
void disable_user_timeout(int fd) {
  const int off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof off);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &off, sizeof off);
}

}  // namespace

void StoreClients::refuse() {
  expected_ = false;
  waiting_.clear();
  boost::system::error_code ignored;
  store_.close(ignored);
}

// Closes the store of the previous round. It may still be open if this node's workers ended first, and clients of the new round
// must not reach it.
void StoreClients::expect() {
  expected_ = true;
  boost::system::error_code ignored;
  store_.close(ignored);
}

bool StoreClients::take(int fd, std::string_view bytes) {
  const bool is_client = !bytes.empty() && static_cast<unsigned char>(bytes.front()) <= kLargestQuery;
  if (!expected_ || !is_client || bytes.size() > kMaxPassedBytes || !is_for_store(fd)) return false;
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return false;
  disable_user_timeout(copy);
  while (waiting_.size() >= max_waiting_clients()) waiting_.pop_front();
  waiting_.push_back({Descriptor(copy), std::string(bytes)});
  pass_on();
  return true;
}

ListeningSockets StoreClients::open(const std::vector<std::string>& addresses) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    throw InternalError("cannot create a socket for the clients of the key-value store: " +
                        std::generic_category().message(errno) + "; raise the limit on open file descriptors (ulimit -Hn)");
  }
  ListeningSockets of_store;
  of_store.emplace_back(ends[1]);
  store_ = stream_descriptor(store_.get_executor(), ends[0]);
  addresses_ = addresses;
  is_full_ = false;
  expected_ = true;
  pass_on();
  return of_store;
}

// Only connections to the store's addresses are passed on. While no store is open, its addresses are unknown, so take() accepts
// the client and pass_on() checks it again.
bool StoreClients::is_for_store(int fd) const {
  return !store_.is_open() || addresses_.empty() || std::ranges::find(addresses_, local_end_of(fd)) != addresses_.end();
}

// Sends waiting clients to the store's process. EPIPE or ECONNRESET means that the store of the last round has exited. The
// clients then wait for the next store.
void StoreClients::pass_on() {
  while (store_.is_open() && !is_full_ && !waiting_.empty()) {
    const Client& next = waiting_.front();
    if (is_for_store(next.connection.get()) && !pass_descriptor(store_.native_handle(), next.connection.get(), next.bytes)) {
      if (errno == EPIPE || errno == ECONNRESET) {
        boost::system::error_code ignored;
        store_.close(ignored);
        return;
      }
      if (errno == EAGAIN) return pass_on_when_writable();
    }
    waiting_.pop_front();
  }
}

void StoreClients::pass_on_when_writable() {
  is_full_ = true;
  store_.async_wait(stream_descriptor::wait_write, [this](const boost::system::error_code& error) {
    if (error) return;
    is_full_ = false;
    pass_on();
  });
}

}  // namespace ddprun
