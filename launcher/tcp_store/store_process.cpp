// Implementation of store_process.hpp: one epoll loop over the listening sockets and the clients.
//
// Note: the number of a client is its file descriptor. When a client is closed, a new client may get the same descriptor. An
// event of the closed client would then be handled for the new one. So each pass of the loop handles all client events before
// it accepts new clients.
#include "launcher/tcp_store/store_process.hpp"

#include <fcntl.h>
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
#include "launcher/tcp_store/script_store.hpp"
#include "launcher/tcp_store/store_admission.hpp"
#include "rendezvous/passing/passed_descriptor.hpp"

namespace ddprun::script_store {
namespace {

constexpr std::size_t kMaxClients = 65536;
constexpr int kMaxNotes = 20;
constexpr std::size_t kChunk = 64 << 10;
using Clock = std::chrono::steady_clock;
// The time for which no client is accepted after accept() has failed because no file descriptor was free.
constexpr std::chrono::milliseconds kNoDescriptorsPause{100};
// If pending data leaves no space for a large reply during this time, a stalled client is disconnected.
constexpr std::chrono::seconds kSpaceTimeout{1};

// Returns false with errno set if no file descriptor is free. Call this before receiving a client from the agent: if no
// descriptor is free, the kernel would close the passed connection. A client that is not received yet waits in the socket.
bool descriptor_available() {
  return Descriptor(::eventfd(0, EFD_CLOEXEC)).get() >= 0;
}

bool client_waits(int agent) {
  char byte = 0;
  return ::recv(agent, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

bool is_unix_socket(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

class ScriptStoreServer {
 public:
  explicit ScriptStoreServer(const StoreSockets& sockets);
  void run();

 private:
  struct Client {
    std::string outbox;              // replies that the socket has not accepted completely
    std::size_t outbox_at = 0;       // number of bytes at the start of `outbox` that the socket has accepted
    std::uint32_t events = EPOLLIN;  // epoll events for which the client is registered
    std::string name;
  };

  void watch(int fd, std::uint32_t events, int operation) const;
  void accept_from(int listener);
  void take_from(int agent);
  bool admit(int fd, const sockaddr_storage& from);
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
  std::size_t max_clients_ = kMaxClients;
  std::vector<char> chunk_ = std::vector<char>(kChunk);
  int epoll_ = -1;
  bool kernel_reports_users_ = false;
  int notes_ = 0;
  bool pause_reported_ = false;
  // Clients are not accepted before this time. It is set when no file descriptor was free.
  std::optional<Clock::time_point> paused_until_;
  std::optional<Clock::time_point> space_deadline_;  // time at which free_space() is called; set while large replies lack space
};

ScriptStoreServer::ScriptStoreServer(const StoreSockets& sockets) : sockets_(sockets), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    constexpr rlim_t kOwn = 32;
    max_clients_ = std::min<std::size_t>(kMaxClients, limit.rlim_cur > kOwn ? limit.rlim_cur - kOwn : 1);
  }
  for (const int fd : sockets_.listeners) watch(fd, EPOLLIN, EPOLL_CTL_ADD);
  kernel_reports_users_ = probe_user_reports();
}

void ScriptStoreServer::watch(int fd, std::uint32_t events, int operation) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  ::epoll_ctl(epoll_, operation, fd, &event);
}

void ScriptStoreServer::run() {
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

// Sends only one large reply per pass of the loop, so that queries of other clients are processed in between.
void ScriptStoreServer::serve_turn() {
  if (space_deadline_ && Clock::now() >= *space_deadline_) {
    space_deadline_.reset();
    carry_out(store_.free_space());
  }
  if (const auto client = store_.next_turn()) {
    carry_out(store_.take_turn());
    watch_client(*client);
  }
}

// Returns the timeout for epoll_wait() in milliseconds, or -1 for no timeout. Also sets or clears the deadline for
// free_space().
int ScriptStoreServer::wait_ms() {
  if (store_.next_turn()) return 0;
  if (!store_.lacks_space()) {
    space_deadline_.reset();
  } else if (!space_deadline_) {
    space_deadline_ = Clock::now() + kSpaceTimeout;
  }
  std::optional<Clock::time_point> next = space_deadline_;
  if (paused_until_ && (!next || *paused_until_ < *next)) next = paused_until_;
  if (!next) return -1;
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(rest, 0));
}

void ScriptStoreServer::accept_from(int listener) {
  for (;;) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause();
      return;
    }
    admit(fd, from);
  }
}

// Receives client connections from an agent that listens on the port itself. The agent has already read the first bytes of each
// client and sends them too.
void ScriptStoreServer::take_from(int agent) {
  for (;;) {
    if (client_waits(agent) && !descriptor_available()) return pause();
    auto passed = receive_passed_descriptor(agent);
    if (!passed) break;
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const int fd = passed->descriptor.get();
    if (fd < 0) {
      note("closed a client's connection, since no file descriptor is free: raise the limit (ulimit -n)");
    } else if (::getpeername(fd, reinterpret_cast<sockaddr*>(&from), &size) == 0 && admit(passed->descriptor.release(), from)) {
      carry_out(store_.received(fd, passed->bytes));
      watch_client(fd);
    }
  }
  if (errno != 0) return;
  watch(agent, 0, EPOLL_CTL_DEL);  // the agent has closed its end of the socket, so no more clients arrive
  std::erase(sockets_.listeners, agent);
}

// Accepts or refuses a new client and takes ownership of `fd`. Returns false if the client was refused; `fd` is then closed.
bool ScriptStoreServer::admit(int fd, const sockaddr_storage& from) {
  const StorePeer peer = peer_of(from);
  Client client{.outbox = {}, .name = std::string(peer.text.data()) + " port " + std::to_string(peer.port)};
  std::string refusal = refusal_of(fd, from, sockets_.only_this_machine, kernel_reports_users_);
  if (clients_.size() >= max_clients_) refusal = "there are " + std::to_string(max_clients_) + " clients already";
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

// Stops accepting clients for a fixed time. Waiting for a client of this store to disconnect would not be enough, since other
// programs use the machine's descriptors too.
void ScriptStoreServer::pause() {
  if (!std::exchange(pause_reported_, true)) note("accepts no clients at the moment: " + std::string(std::strerror(errno)));
  paused_until_ = Clock::now() + kNoDescriptorsPause;
  // Removes the sockets from epoll. Registering them without events is not enough: epoll always reports EPOLLHUP of the agent's
  // socket, so the loop would spin.
  for (const int fd : sockets_.listeners) watch(fd, 0, EPOLL_CTL_DEL);
}

void ScriptStoreServer::resume() {
  paused_until_.reset();
  for (const int listener : sockets_.listeners) watch(listener, EPOLLIN, EPOLL_CTL_ADD);
}

// Reads queries of a client. A client that does not read its replies cannot send queries: watch_client() registers it for
// EPOLLIN only while all its replies are sent.
void ScriptStoreServer::read_from(int fd) {
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

void ScriptStoreServer::carry_out(std::vector<Action> actions) {
  for (Action& action : actions) {
    if (auto* answer = std::get_if<Send>(&action)) {
      send(answer->client, std::move(answer->bytes));
    } else if (const auto& cut = std::get<Disconnect>(action); clients_.contains(cut.client)) {
      note("cut off a client at " + clients_.at(cut.client).name + ": " + cut.why);
      close_client(cut.client);
    }
  }
}

void ScriptStoreServer::send(int fd, std::string bytes) {
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

void ScriptStoreServer::flush(int fd) {
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

// Registers the client for the events that it needs now: EPOLLOUT while it has unsent replies, otherwise EPOLLIN if the store
// can process its next query.
void ScriptStoreServer::watch_client(int fd) {
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

void ScriptStoreServer::close_client(int fd) {
  ::close(fd);
  clients_.erase(fd);
  if (paused_until_) resume();
}

// Writes a message for the user. It writes at most kMaxNotes messages, so that clients cannot flood the console.
void ScriptStoreServer::note(const std::string& text) {
  if (notes_ == kMaxNotes) return;
  const bool last = ++notes_ == kMaxNotes;
  const std::string line = text.substr(0, kChunk) + (last ? "; further notes are omitted" : "") + "\n";
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

// Closes all descriptors except `kept` and 0 to 2, which are redirected to /dev/null. Otherwise this process would keep the
// console's pipe open, and the reader of that pipe would wait until this process ends.
void keep_only(std::vector<int> kept) {
  std::ranges::sort(kept);
  unsigned next = STDERR_FILENO + 1;
  for (const int fd : kept) {
    if (fd > 0 && static_cast<unsigned>(fd) > next) close_range_of(next, static_cast<unsigned>(fd) - 1);
    next = static_cast<unsigned>(fd) + 1;
  }
  close_range_of(next, ~0U);
  const int dev_null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && dev_null >= 0; ++fd) ::dup2(dev_null, fd);
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
    ScriptStoreServer(sockets).run();
  } catch (const std::exception& error) {
    const std::string line = "ends: " + std::string(error.what()) + "\n";
    [[maybe_unused]] const ssize_t n = ::write(sockets.notes, line.data(), line.size());
  }
  ::_exit(1);
}

}  // namespace ddprun::script_store
