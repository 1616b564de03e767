// See group_breaker.hpp.
//
// Note [Shutting down what Gloo owns]
// shutdown() on a descriptor that Gloo will close itself is safe from any thread: it ends the connection, not the descriptor.
// Between the check and the shutdown, a descriptor may be closed and its number given to another socket. So sockets are
// identified by their cookie, which the kernel never reuses, and the check comes right before the shutdown.
//
// Note [Whose sockets]
// Gloo has no function that lists its sockets. So every TCP socket that is created while a group is made counts as the group's:
// all its listeners and connections exist when that is done. A socket that other code opens in these few milliseconds also
// counts as the group's.
//
// Note [A connection that never comes]
// Of two ranks, one connects and the other waits at its listener. If the first one dies before it connects, Gloo waits for five
// times the group's timeout. Gloo also forgets a connection that ends before its first bytes were read, so that two living
// ranks may wait forever. In both cases there is no connection to shut down. So the breaker itself makes the expected
// connections to this process's own listeners, and ends them immediately. Each sends the eight bytes that identify it (a number
// below the size of the group; Gloo's transport/tcp/listener.cc). Gloo closes a connection that it does not expect.
//
// Note [A socket that is nothing yet]
// shutdown() on a socket without a connection returns ENOTCONN and still marks the socket (Linux, inet_shutdown). If the socket
// becomes a listener later, every connection that it accepts is already shut down. No answer reaches it, and it waits forever.
//
// Note [An operation that is cut off]
// Suppose that a connection ends in the middle of an operation. Gloo then fails the operations that had not begun, but not this
// one (Pair::signalException does not cover the operation that is being read or written). Its waiter would wait until the
// group's timeout. A message between two ranks can be aborted. A collective can't, so its waiter is released, and Gloo's thread
// stays behind with the whole group (trainer/life/membership.cpp).
//
// Note [When NCCL's group is broken while it is being made]
// aborts() is called once the backend exists; if the group was broken before, it aborts the backend immediately. NCCL makes its
// communicators in the first exchanges. The backend does not know a communicator yet for which some ranks are missing, so no
// call aborts it. The agent then finds that this worker does not return, and restarts all workers.
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

// While a thread makes connections, no event reports the next one, so the breaker polls.
constexpr std::chrono::milliseconds kLookAgain{5};
// Looks number 1, 2, 4, 8 ... and every 64th also call answer_for_the_lost(). One call is not enough: it may come just before
// Gloo listens, and its connections may be shut down before Gloo reads from them.
constexpr unsigned kSeldom = 64;
// After this many looks, every wait has ended that a closed connection can end.
constexpr unsigned kLooksUntilLetGo = 5;
constexpr timeval kPatienceWithOurselves{.tv_sec = 0, .tv_usec = 50'000};

template <class Value>
Value option_of(int fd, int option, Value otherwise) {
  Value value{};
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : otherwise;
}

// Whether there is a connection to shut down; false before it is begun and after its end.
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
    if (domain != AF_INET && domain != AF_INET6) continue;  // non-TCP ones neither listen nor have a TCP_INFO
    act(fd, option_of(fd, SO_ACCEPTCONN, 0) == 1 ? TcpSocket::kListener : TcpSocket::kConnection,
        option_of<std::uint64_t>(fd, SO_COOKIE, 0));
  }
}

// Connects to `address`, sends the number `sequence`, and closes the connection.
void connect_and_end(const sockaddr_storage& address, socklen_t length, std::int64_t sequence) {
  const int fd = ::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatienceWithOurselves, sizeof kPatienceWithOurselves);  // also limits connect()
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) {
    [[maybe_unused]] const ssize_t sent = ::send(fd, &sequence, sizeof sequence, MSG_NOSIGNAL);  // the next look tries again
  }
  ::close(fd);
}

}  // namespace

void GroupBreaker::making_begins() {
  const std::lock_guard lock(sockets_mutex_);
  if (makings_++ > 0) return;
  of_group_.clear();
  others_.clear();
  for_each_tcp([this](int, TcpSocket, std::uint64_t cookie) { others_.insert(cookie); });
}

void GroupBreaker::making_ends() {
  const std::lock_guard lock(sockets_mutex_);
  for_each_tcp([this](int, TcpSocket, std::uint64_t cookie) {
    if (!others_.contains(cookie)) of_group_.insert(cookie);
  });
  --makings_;
}

bool GroupBreaker::is_of_group(std::uint64_t cookie) {
  const std::lock_guard lock(sockets_mutex_);
  return makings_ > 0 ? !others_.contains(cookie) : of_group_.contains(cookie);
}

void GroupBreaker::shut_connections() {
  for_each_tcp([this](int fd, TcpSocket kind, std::uint64_t cookie) {
    if (kind == TcpSocket::kConnection && is_of_group(cookie) && is_connected(fd)) ::shutdown(fd, SHUT_RDWR);
  });
}

void GroupBreaker::answer_for_the_lost() {
  for_each_tcp([this](int fd, TcpSocket kind, std::uint64_t cookie) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (kind != TcpSocket::kListener || !is_of_group(cookie) ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      return;
    }
    for (int sequence = 0; sequence < world_; ++sequence) connect_and_end(address, length, sequence);
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
  if (!message->wait()) throw std::runtime_error("Connection closed by peer: the group is being made anew");
}

void GroupBreaker::aborts(c10::intrusive_ptr<c10d::Backend> backend) {
  const std::lock_guard lock(backend_mutex_);
  backend_ = std::move(backend);
  ends_in_silence_ = true;
  if (broken_) abort_backend();
}

// Runs in a thread: abort() takes long, since it waits for running kernels.
void GroupBreaker::abort_backend() {
  if (!backend_) return;
  aborting_ = std::jthread([backend = std::exchange(backend_, nullptr)] {
    try {
      backend->abort();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "ddptrain: the group of the GPUs could not be aborted: %s\n", error.what());
    }
  });
}

void GroupBreaker::break_group() {
  if (thread_.joinable()) return;  // broken already
  broken_ = true;
  shut_connections();
  {
    const std::lock_guard lock(backend_mutex_);
    abort_backend();
  }
  thread_ = std::jthread([this](const std::stop_token& mended) {
    std::unique_lock lock(mutex_);
    unsigned looks = 0;
    do {
      shut_connections();
      abort_messages();
      if (++looks >= kLooksUntilLetGo) collectives_.let_go();
      if (std::has_single_bit(looks) || looks % kSeldom == 0) answer_for_the_lost();
    } while (!mended_.wait_for(lock, mended, kLookAgain, [] { return false; }) && !mended.stop_requested());
  });
}

void GroupBreaker::await_abort() {
  std::jthread abort;  // joined after the lock is released
  const std::lock_guard lock(backend_mutex_);
  abort.swap(aborting_);
}

void GroupBreaker::mend() {
  await_abort();
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
    thread_ = {};
  }
  const std::lock_guard lock(backend_mutex_);
  backend_.reset();
  ends_in_silence_ = false;
  broken_ = false;
}

}  // namespace ddprun::trainer
