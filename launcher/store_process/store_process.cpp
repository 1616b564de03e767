// Implementation of store_process.hpp: one epoll loop over the listening sockets and the clients.
//
// Note: a client's number is that of its descriptor. After a close the next client may get the same number. So each batch of
// events accepts new clients last: then no event of the batch can belong to an earlier client.
#include "launcher/store_process/store_process.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/system/descriptor.hpp"
#include "launcher/script_store/script_store.hpp"
#include "launcher/store_process/peer_user.hpp"
#include "rendezvous/passing/passed_descriptor.hpp"

namespace ddprun::script_store {
namespace {

constexpr std::size_t kMostClients = 65536;
constexpr int kMostNotes = 20;
constexpr std::size_t kChunk = 64 << 10;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};
constexpr std::chrono::seconds kRoomWithin{1};

// An address as people write it. IPv4 received through an IPv6 socket is shown as IPv4.
struct Peer {
  std::array<char, INET6_ADDRSTRLEN> text{};
  int port = 0;
  in6_addr address{};  // an IPv4 address is stored in mapped form
};

Peer peer_of(const sockaddr_storage& from) {
  Peer peer;
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

bool is_loopback(const in6_addr& address) {
  return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
}

// A connection to an address of this machine is local if it comes from the same address or from loopback.
bool is_of_this_machine(const Peer& peer, const Peer& here) {
  return is_loopback(peer.address) || std::memcmp(&here.address, &peer.address, sizeof peer.address) == 0;
}

// Checked before a client is received: the kernel closes a passed connection if no descriptor is free at that moment. Until it
// is received, the connection waits in the socket. Returns false with errno set.
bool a_descriptor_is_free() {
  return Descriptor(::eventfd(0, EFD_CLOEXEC)).get() >= 0;
}

bool a_client_waits(int agent) {
  char byte = 0;
  return ::recv(agent, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

bool is_unix_socket(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

// Whether the kernel reports the owner of a socket. Tested with a query about a listening socket of this process.
bool kernel_tells_users() {
  for (const int family : {AF_INET, AF_INET6}) {
    const Descriptor listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // listen() on an unbound socket: the kernel chooses a port
    if (listener.get() < 0 || ::listen(listener.get(), 1) != 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) continue;
    sockaddr_storage no_peer{};
    no_peer.ss_family = static_cast<sa_family_t>(family);
    if (user_of_peer(own, no_peer).is == PeerUser::Is::kUser) return true;
  }
  return false;
}

// The reason why this connection is refused; empty if it is served. From this machine only our user and root are admitted. If
// the kernel reports owners but knows none for this peer, the peer has already closed its end, so its user cannot be
// determined. It is refused as well.
std::string refusal_of(int socket, const sockaddr_storage& from, bool only_this_machine, bool kernel_tells) {
  sockaddr_storage here{};
  socklen_t size = sizeof here;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &size) != 0) return "it is gone";
  // A connection from another address of this machine is local as well; the kernel then knows the peer.
  const bool local = is_loopback(peer_of(here).address) || is_of_this_machine(peer_of(from), peer_of(here));
  const PeerUser peer = user_of_peer(from, here);
  if (!local && peer.is != PeerUser::Is::kUser) return only_this_machine ? "it is on another machine, and this job on one" : "";
  if (peer.is == PeerUser::Is::kGone || (peer.is == PeerUser::Is::kUnknown && kernel_tells)) return "it is gone";
  if (peer.is == PeerUser::Is::kUnknown || peer.user == ::geteuid() || peer.user == 0) return "";
  return "it is of user " + std::to_string(peer.user) + ", and this job of user " + std::to_string(::geteuid()) +
         " (--agent-store off lets all in)";
}

class StoreServer {
 public:
  explicit StoreServer(const StoreSockets& sockets);
  void run();

 private:
  struct Client {
    std::string outbox;              // bytes that the socket did not accept
    std::size_t outbox_at = 0;       // bytes of the outbox that the socket has accepted since
    std::uint32_t events = EPOLLIN;  // epoll events that are watched
    std::string name;
  };

  void watch(int fd, std::uint32_t events, int operation) const;
  void accept_from(int listener);
  void take_from(int agent);
  bool let_in(int fd, const sockaddr_storage& from);
  void read_from(int fd);
  void carry_out(std::vector<Action> actions);
  void send(int fd, std::string bytes);
  void flush(int fd);
  void watch_client(int fd);
  void close_client(int fd);
  void serve_turn();
  int wait_ms();
  void pause();
  void resume();
  void note(const std::string& text);

  StoreSockets sockets_;
  ScriptStore store_;
  std::unordered_map<int, Client> clients_;
  std::size_t most_clients_ = kMostClients;
  std::vector<char> chunk_ = std::vector<char>(kChunk);
  int epoll_ = -1;
  bool kernel_tells_ = false;
  int notes_ = 0;
  bool told_pause_ = false;
  std::optional<Clock::time_point> paused_until_;  // set while no descriptor is free: new clients wait until then
  std::optional<Clock::time_point> room_by_;       // set while large answers lack room: make_room() is called then
};

StoreServer::StoreServer(const StoreSockets& sockets) : sockets_(sockets), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    constexpr rlim_t kOwn = 32;
    most_clients_ = std::min<std::size_t>(kMostClients, limit.rlim_cur > kOwn ? limit.rlim_cur - kOwn : 1);
  }
  for (const int fd : sockets_.listeners) watch(fd, EPOLLIN, EPOLL_CTL_ADD);
  kernel_tells_ = kernel_tells_users();
}

void StoreServer::watch(int fd, std::uint32_t events, int operation) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  ::epoll_ctl(epoll_, operation, fd, &event);
}

void StoreServer::run() {
  std::array<epoll_event, 256> events{};
  for (;;) {
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), wait_ms());
    if (count < 0 && errno != EINTR) return;
    const auto ready = std::span(events).first(static_cast<std::size_t>(std::max(count, 0)));
    for (const epoll_event& event : ready) {
      const int fd = event.data.fd;
      if ((event.events & EPOLLOUT) != 0) flush(fd);
      if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_from(fd);
    }
    for (const epoll_event& event : ready) {
      if (std::ranges::find(sockets_.listeners, event.data.fd) == sockets_.listeners.end()) continue;
      if (is_unix_socket(event.data.fd)) {
        take_from(event.data.fd);
      } else {
        accept_from(event.data.fd);
      }
    }
    serve_turn();
    if (paused_until_ && Clock::now() >= *paused_until_) resume();
  }
}

// Serves one large answer per pass, so that queries of other clients are read between two of them.
void StoreServer::serve_turn() {
  if (room_by_ && Clock::now() >= *room_by_) {
    room_by_.reset();
    carry_out(store_.make_room());
  }
  if (const auto client = store_.next_turn()) {
    carry_out(store_.take_turn());
    watch_client(*client);
  }
}

int StoreServer::wait_ms() {
  if (store_.next_turn()) return 0;
  if (!store_.lacks_room()) {
    room_by_.reset();
  } else if (!room_by_) {
    room_by_ = Clock::now() + kRoomWithin;
  }
  std::optional<Clock::time_point> next = room_by_;
  if (paused_until_ && (!next || *paused_until_ < *next)) next = paused_until_;
  if (!next) return -1;
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(rest, 0));
}

void StoreServer::accept_from(int listener) {
  for (;;) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause();
      return;
    }
    let_in(fd, from);
  }
}

// Receives clients from an agent that listens itself. The agent has already read the first bytes of each one.
void StoreServer::take_from(int agent) {
  for (;;) {
    if (a_client_waits(agent) && !a_descriptor_is_free()) return pause();
    auto passed = receive_passed_descriptor(agent);
    if (!passed) break;
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd = passed->descriptor.get();
    if (fd < 0) {
      note("closed a client's connection: no file descriptor is free; raise ulimit -n");
    } else if (::getpeername(fd, reinterpret_cast<sockaddr*>(&from), &size) == 0 &&
               let_in(passed->descriptor.release(), from)) {
      carry_out(store_.received(fd, passed->bytes));
      watch_client(fd);
    }
  }
  if (errno != 0) return;
  watch(agent, 0, EPOLL_CTL_DEL);  // the agent closed its end: no more clients
  std::erase(sockets_.listeners, agent);
}

// Takes ownership of `fd`. Returns false if the client is refused; `fd` is then closed.
bool StoreServer::let_in(int fd, const sockaddr_storage& from) {
  const Peer peer = peer_of(from);
  Client client{.outbox = {}, .name = std::string(peer.text.data()) + " port " + std::to_string(peer.port)};
  std::string refusal = refusal_of(fd, from, sockets_.only_this_machine, kernel_tells_);
  if (clients_.size() >= most_clients_) refusal = "there are " + std::to_string(most_clients_) + " clients already";
  if (!refusal.empty()) {
    note("closed a connection from " + client.name + ": " + refusal);
    ::close(fd);
    return false;
  }
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  clients_.emplace(fd, std::move(client));
  store_.connected(fd);
  watch(fd, EPOLLIN, EPOLL_CTL_ADD);
  return true;
}

// Pauses for a fixed time. Waiting for a client to leave is not enough, since other programs can use up and release the
// machine's descriptors.
void StoreServer::pause() {
  if (!std::exchange(told_pause_, true)) note("lets no clients in for the moment: " + std::string(std::strerror(errno)));
  paused_until_ = Clock::now() + kPauseWithoutDescriptors;
  // Removed from epoll instead of masked, since epoll always reports the end of the agent's socket.
  for (const int fd : sockets_.listeners) watch(fd, 0, EPOLL_CTL_DEL);
}

void StoreServer::resume() {
  paused_until_.reset();
  for (const int listener : sockets_.listeners) watch(listener, EPOLLIN, EPOLL_CTL_ADD);
}

// Called only if the client reads its answers; otherwise its queries are not read either.
void StoreServer::read_from(int fd) {
  const auto client = clients_.find(fd);
  if (client == clients_.end()) return;
  const ssize_t n = ::recv(fd, chunk_.data(), chunk_.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    store_.gone(fd);
    return close_client(fd);
  }
  carry_out(store_.received(fd, {chunk_.data(), static_cast<std::size_t>(n)}));
  watch_client(fd);
}

void StoreServer::carry_out(std::vector<Action> actions) {
  for (Action& action : actions) {
    if (auto* answer = std::get_if<Send>(&action)) {
      send(answer->client, std::move(answer->bytes));
    } else if (const auto& cut = std::get<Disconnect>(action); clients_.contains(cut.client)) {
      note("cut off a client at " + clients_.at(cut.client).name + ": " + cut.why);
      close_client(cut.client);
    }
  }
}

void StoreServer::send(int fd, std::string bytes) {
  const auto client = clients_.find(fd);
  if (client == clients_.end()) return;
  std::string& outbox = client->second.outbox;
  if (!outbox.empty()) {
    outbox.append(bytes);
    return;
  }
  outbox = std::move(bytes);
  flush(fd);
}

void StoreServer::flush(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  Client& client = found->second;
  const std::size_t before = client.outbox_at;
  while (client.outbox_at < client.outbox.size()) {
    const ssize_t n =
        ::send(fd, client.outbox.data() + client.outbox_at, client.outbox.size() - client.outbox_at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) {
      store_.gone(fd);
      return close_client(fd);
    }
    if (n < 0) break;
    client.outbox_at += static_cast<std::size_t>(n);
  }
  store_.sent(fd, client.outbox_at - before);
  if (client.outbox_at == client.outbox.size()) {
    client.outbox.clear();
    client.outbox_at = 0;
    if (client.outbox.capacity() > kChunk) client.outbox.shrink_to_fit();
  }
  watch_client(fd);
}

void StoreServer::watch_client(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  std::uint32_t events = 0;
  if (!found->second.outbox.empty()) {
    events = EPOLLOUT;
  } else if (store_.is_served(fd)) {
    events = EPOLLIN;
  }
  if (std::exchange(found->second.events, events) != events) watch(fd, events, EPOLL_CTL_MOD);
}

void StoreServer::close_client(int fd) {
  ::close(fd);
  clients_.erase(fd);
  if (paused_until_) resume();
}

void StoreServer::note(const std::string& text) {
  if (notes_ == kMostNotes) return;
  const bool last = ++notes_ == kMostNotes;
  const std::string line = text.substr(0, kChunk) + (last ? "; it says no more" : "") + "\n";
  [[maybe_unused]] const ssize_t n = ::write(sockets_.notes, line.data(), line.size());
}

void close_range_of(unsigned first, unsigned last) {
  if (first > last || ::syscall(SYS_close_range, first, last, 0) == 0) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (unsigned fd = first; fd <= std::min<rlim_t>(last, std::min<rlim_t>(limit.rlim_cur, 65536)); ++fd) {
    ::close(static_cast<int>(fd));
  }
}

// Closes all descriptors except these and the standard ones. Those are redirected to /dev/null, since a reader of the console's
// pipe would otherwise wait for this process to end.
void keep_only(std::vector<int> kept) {
  std::ranges::sort(kept);
  unsigned next = STDERR_FILENO + 1;
  for (const int fd : kept) {
    if (fd > 0 && static_cast<unsigned>(fd) > next) close_range_of(next, static_cast<unsigned>(fd) - 1);
    next = static_cast<unsigned>(fd) + 1;
  }
  close_range_of(next, ~0U);
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && nowhere >= 0; ++fd) ::dup2(nowhere, fd);
}

}  // namespace

void serve_scripts(const StoreSockets& sockets, int parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  ::prctl(PR_SET_NAME, "job-store");
  std::vector<int> kept = sockets.listeners;
  kept.push_back(sockets.notes);
  keep_only(std::move(kept));
  try {
    StoreServer(sockets).run();
  } catch (const std::exception& error) {
    const std::string line = "ends: " + std::string(error.what()) + "\n";
    [[maybe_unused]] const ssize_t n = ::write(sockets.notes, line.data(), line.size());
  }
  ::_exit(1);
}

}  // namespace ddprun::script_store
