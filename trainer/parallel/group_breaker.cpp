// Implementation of group_breaker.hpp. break_group() starts a thread, which ends all waits in Gloo until end_break() is called.
// There are different kinds of waits, so the thread does four things in a loop: it shuts connections down, makes connections
// that Gloo expects, aborts messages, and releases the waiters of collectives. The notes explain why each of them is needed.
//
// Note [Shutting down the sockets of Gloo]
// Gloo owns its sockets and closes them. But another thread may call shutdown() on a socket: this ends the connection and keeps
// the descriptor open. Gloo may close a descriptor at the same time, and the kernel may then reuse its number for another
// socket. So we identify sockets by their cookie, which the kernel never reuses, and check the cookie right before the
// shutdown.
//
// Note [The sockets of a group]
// Gloo has no function that lists its sockets. So each TCP socket that is created during the creation of a group counts as a
// socket of the group. All listeners and connections of the group exist when its creation ends. If other code opens a socket in
// these few milliseconds, that socket is shut down too.
//
// Note [A connection that never arrives]
// For each pair of ranks, one rank connects, and the other rank waits at its listener. If the first rank is lost before it
// connects, Gloo waits for five times the timeout of the group. Gloo also loses a connection that ends before its first bytes
// are read, so that even two live ranks may wait without a limit. In both cases there is no connection to shut down. So the
// breaker itself connects to the listeners of this process, in place of the missing ranks, and closes these connections
// immediately. In each connection it sends the eight bytes with which Gloo identifies the peer: a number below the size of the
// group (transport/tcp/listener.cc of Gloo). Gloo closes connections that it does not expect.
//
// Note [A socket without a connection]
// The breaker must not shut down a socket that is not connected. On Linux, shutdown() then returns ENOTCONN, but it still marks
// the socket (inet_shutdown). If Gloo later makes the socket a listener, each connection that it accepts is already shut down.
// Then no answer arrives, and Gloo waits without a limit.
//
// Note [An operation that is cut off]
// Suppose that a connection ends in the middle of an operation. Gloo then fails all operations that have not started. It does
// not fail the interrupted operation: Pair::signalException ignores the operation that is being read or written. A thread that
// waits for this operation would wait until the timeout of the group. If the operation is a message between two ranks, the
// breaker aborts it. A collective cannot be aborted, so the breaker releases its waiter. A thread of Gloo may then still be
// using the group, which cannot be destroyed (trainer/job/job_place.cpp).
//
// Note [An NCCL group that is broken during its creation]
// set_backend() is called as soon as the NCCL backend exists. If the group is already broken, set_backend() aborts the backend
// immediately. But NCCL creates its communicators only in the first collectives. While a communicator waits for missing ranks,
// it is not registered in the backend, so no call can abort it. The worker then hangs. The agent detects that and restarts all
// workers.
#include "trainer/parallel/group_breaker.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <bit>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace ddprun::trainer {
namespace {

// The breaker must poll, since no event reports that another thread has opened a connection.
constexpr std::chrono::milliseconds kPollInterval{5};
// connect_for_lost_ranks() is called in polls 1, 2, 4, 8 ... and in every 64th poll. One call does not suffice: Gloo may not
// listen yet, or the connections may be shut down before Gloo reads from them.
constexpr unsigned kConnectEvery = 64;
// Number of polls before the waiters of collectives are released. By then, the closed connections have ended all other waits,
// and only waits for an interrupted operation remain.
constexpr unsigned kPollsUntilRelease = 5;
constexpr timeval kSelfConnectTimeout{.tv_sec = 0, .tv_usec = 50'000};

template <class Value>
Value option_of(int fd, int option, Value default_value) {
  Value value{};
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : default_value;
}

// Returns true if the socket is connected or connecting, and false before connect() and after the connection has ended.
bool is_connected(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state != TCP_CLOSE;
}

enum class TcpSocket { kConnection, kListener };

void for_each_tcp(const std::function<void(int fd, TcpSocket kind, std::uint64_t cookie)>& act) {
  std::error_code gone;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", gone), end; !gone && entry != end; entry.increment(gone)) {
    const std::string name = entry->path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    const int domain = option_of(fd, SO_DOMAIN, -1);
    // UDP sockets are harmless here: they do not listen and have no TCP_INFO.
    if (domain != AF_INET && domain != AF_INET6) continue;
    act(fd, option_of(fd, SO_ACCEPTCONN, 0) == 1 ? TcpSocket::kListener : TcpSocket::kConnection,
        option_of<std::uint64_t>(fd, SO_COOKIE, 0));
  }
}

// Connects to `address`, sends the number `sequence`, and closes the connection.
void connect_and_close(const sockaddr_storage& address, socklen_t length, std::int64_t sequence) {
  const int fd = ::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kSelfConnectTimeout, sizeof kSelfConnectTimeout);  // also limits connect()
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) {
    // The result is ignored, because later polls try again.
    [[maybe_unused]] const ssize_t sent = ::send(fd, &sequence, sizeof sequence, MSG_NOSIGNAL);
  }
  ::close(fd);
}

}  // namespace

void GroupBreaker::creation_begins() {
  const std::lock_guard lock(sockets_mutex_);
  if (creations_++ > 0) return;
  of_group_.clear();
  others_.clear();
  for_each_tcp([this](int, TcpSocket, std::uint64_t cookie) { others_.insert(cookie); });
}

void GroupBreaker::creation_ends() {
  const std::lock_guard lock(sockets_mutex_);
  for_each_tcp([this](int, TcpSocket, std::uint64_t cookie) {
    if (!others_.contains(cookie)) of_group_.insert(cookie);
  });
  --creations_;
}

bool GroupBreaker::belongs_to_group(std::uint64_t cookie) {
  const std::lock_guard lock(sockets_mutex_);
  return creations_ > 0 ? !others_.contains(cookie) : of_group_.contains(cookie);
}

void GroupBreaker::shut_connections() {
  for_each_tcp([this](int fd, TcpSocket kind, std::uint64_t cookie) {
    if (kind == TcpSocket::kConnection && belongs_to_group(cookie) && is_connected(fd)) ::shutdown(fd, SHUT_RDWR);
  });
}

void GroupBreaker::connect_for_lost_ranks() {
  for_each_tcp([this](int fd, TcpSocket kind, std::uint64_t cookie) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (kind != TcpSocket::kListener || !belongs_to_group(cookie) ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      return;
    }
    for (int sequence = 0; sequence < world_; ++sequence) connect_and_close(address, length, sequence);
  });
}

void GroupBreaker::abort_messages() {
  const std::lock_guard lock(messages_mutex_);
  for (const auto& message : messages_) message->abort();
}

void GroupBreaker::wait(const c10::intrusive_ptr<c10d::Work>& message) {
  struct Listed {
    GroupBreaker& breaker;
    const c10::intrusive_ptr<c10d::Work>& message;
    Listed(GroupBreaker& owner, const c10::intrusive_ptr<c10d::Work>& one) : breaker(owner), message(one) {
      const std::lock_guard lock(breaker.messages_mutex_);
      breaker.messages_.insert(message);
    }
    ~Listed() {
      const std::lock_guard lock(breaker.messages_mutex_);
      breaker.messages_.erase(message);
    }
  } const listed(*this, message);
  if (!message->wait()) throw std::runtime_error("Connection closed by peer: the process group is being rebuilt");
}

void GroupBreaker::set_backend(c10::intrusive_ptr<c10d::Backend> backend) {
  const std::lock_guard lock(backend_mutex_);
  backend_ = std::move(backend);
  aborts_silently_ = true;
  if (broken_) abort_backend();
}

void GroupBreaker::set_abortable(c10::intrusive_ptr<c10d::Backend> backend) {
  const std::lock_guard lock(backend_mutex_);
  abortable_ = std::move(backend);
  if (broken_) abortable_->abort();
}

// Aborts the backend in a separate thread, since abort() waits for running kernels, which may take long.
void GroupBreaker::abort_backend() {
  if (!backend_) return;
  aborting_ = std::jthread([backend = std::exchange(backend_, nullptr)] {
    try {
      backend->abort();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "ddptrain: the process group of the GPUs could not be aborted: %s\n", error.what());
    }
  });
}

void GroupBreaker::break_group() {
  if (thread_.joinable()) return;  // the group is already broken
  broken_ = true;
  shut_connections();
  {
    const std::lock_guard lock(backend_mutex_);
    if (abortable_) abortable_->abort();
    abort_backend();
  }
  thread_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    unsigned polls = 0;
    do {
      shut_connections();
      abort_messages();
      if (++polls >= kPollsUntilRelease) collectives_.release_waiters();
      if (std::has_single_bit(polls) || polls % kConnectEvery == 0) connect_for_lost_ranks();
    } while (!wake_.wait_for(lock, stop, kPollInterval, [] { return false; }) && !stop.stop_requested());
  });
}

void GroupBreaker::await_abort() {
  std::jthread abort;  // destroyed after the lock is released; the destructor waits for the abort
  const std::lock_guard lock(backend_mutex_);
  abort.swap(aborting_);
}

void GroupBreaker::end_break() {
  await_abort();
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
    thread_ = {};
  }
  const std::lock_guard lock(backend_mutex_);
  backend_.reset();
  abortable_.reset();
  aborts_silently_ = false;
  broken_ = false;
}

}  // namespace ddprun::trainer
