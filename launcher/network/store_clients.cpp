// Implementation of store_clients.hpp.
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

// A query's first byte is a small number; text protocols begin with a larger character.
constexpr unsigned char kLargestQuery = 31;
constexpr std::size_t kMostClientsWaiting = 1024;

// Limits the number of waiting clients. Any host can connect, so most descriptors are reserved for the rest of the agent.
std::size_t most_clients_waiting() {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur == RLIM_INFINITY) return kMostClientsWaiting;
  return std::clamp<std::size_t>(descriptors.rlim_cur / 4, 1, kMostClientsWaiting);
}

std::string own_end_of(int fd) {
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

// The listener sets short timeouts for agents. A store client gets TCP's defaults back, as with a TCPStore in rank 0.
void end_timeouts_of(int fd) {
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

// If this node's workers ended first, the store of the previous round is still open. Clients of the new round must not reach
// it.
void StoreClients::expect() {
  expected_ = true;
  boost::system::error_code ignored;
  store_.close(ignored);
}

bool StoreClients::take(int fd, std::string_view bytes) {
  const bool is_client = !bytes.empty() && static_cast<unsigned char>(bytes.front()) <= kLargestQuery;
  if (!expected_ || !is_client || bytes.size() > kMostPassedBytes || !is_for_store(fd)) return false;
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return false;
  end_timeouts_of(copy);
  while (waiting_.size() >= most_clients_waiting()) waiting_.pop_front();
  waiting_.push_back({Descriptor(copy), std::string(bytes)});
  pass_on();
  return true;
}

ListeningSockets StoreClients::open(const std::vector<std::string>& addresses) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    throw InternalError("no socket for the clients of the workers' store: " + std::generic_category().message(errno) +
                        "; raise the limit of descriptors (ulimit -Hn)");
  }
  ListeningSockets of_store;
  of_store.add(ends[1]);
  store_ = stream_descriptor(store_.get_executor(), ends[0]);
  addresses_ = addresses;
  is_full_ = false;
  expected_ = true;
  pass_on();
  return of_store;
}

// While no store is open, the addresses of the next one are unknown. So pass_on() checks each client again.
bool StoreClients::is_for_store(int fd) const {
  return !store_.is_open() || addresses_.empty() || std::ranges::find(addresses_, own_end_of(fd)) != addresses_.end();
}

// EPIPE and ECONNRESET: the store of the last round has exited. The clients then wait for the next one.
void StoreClients::pass_on() {
  while (store_.is_open() && !is_full_ && !waiting_.empty()) {
    const Client& next = waiting_.front();
    if (is_for_store(next.connection.get()) && !pass_descriptor(store_.native_handle(), next.connection.get(), next.bytes)) {
      if (errno == EPIPE || errno == ECONNRESET) {
        boost::system::error_code ignored;
        store_.close(ignored);
        return;
      }
      if (errno == EAGAIN) return pass_on_when_there_is_room();
    }
    waiting_.pop_front();
  }
}

void StoreClients::pass_on_when_there_is_room() {
  is_full_ = true;
  store_.async_wait(stream_descriptor::wait_write, [this](const boost::system::error_code& error) {
    if (error) return;
    is_full_ = false;
    pass_on();
  });
}

}  // namespace ddprun
