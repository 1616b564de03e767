// See group_breaker.hpp.
//
// Note [Shutting down what Gloo owns]
// shutdown() on a descriptor that Gloo will close itself is safe from any thread: it ends the connection, not the descriptor. A
// number may be closed and given to another socket between the look at it and the shutdown; sockets are known by their cookie,
// which the kernel gives once, and the look comes right before.
//
// Note [Whose sockets]
// Gloo tells nobody which sockets are its own. So all TCP sockets that come into being while a group is made are taken for the
// group's: its listeners and connections are all there when the making is over. One that other code opens in these few
// milliseconds is taken for the group's too.
//
// Note [A connection that never comes]
// Of two ranks one connects and the other waits at its listener. If the first one dies before it has, Gloo waits for five times
// the group's timeout; it also forgets a connection that ends before the first bytes were read, so that two ranks that both
// live may wait for ever. There is nothing to shut down then. So the breaker makes the connections that may be waited for
// itself: to this process' own listeners, each with the eight bytes that say which one it is (a number below the size of the
// group; Gloo's transport/tcp/listener.cc), and ends them at once. One more than Gloo waits for is closed by it.
//
// Note [A socket that is nothing yet]
// shutdown() on a socket without a connection says ENOTCONN and still marks it (Linux, inet_shutdown). When it becomes a
// listener then, all that it accepts is born shut down: no answer reaches it, and it waits for ever.
//
// Note [An operation that is cut off]
// When a connection ends in the middle of an operation, Gloo tells those who wait for others that had not begun, but not for
// this one (Pair::signalException knows nothing of what is being read or written just then). It would be waited for until the
// group's timeout. A message between two ranks can be aborted. A collective can't; whoever waits for it is let go, and Gloo's
// thread is left behind with the whole group (trainer/life/membership.cpp).
//
// Note [When NCCL's group is broken while it is being made]
// aborts() comes once the backend is there, and an order that came before it aborts it at once. Its communicators come with the
// first exchanges. One whose ranks do not all come is not known to the backend yet, and is aborted by nobody: then the agent
// takes this worker for one that does not come back, and starts everybody anew.
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

// While a thread is making connections nothing tells when the next one is there.
constexpr std::chrono::milliseconds kLookAgain{5};
// Of these looks the first, second, fourth, eighth ... also answer for the lost: it may happen just before Gloo listens, and
// what is answered may be shut down before it is read.
constexpr unsigned kSeldom = 64;
// By then whatever ends because its connections did has ended.
constexpr unsigned kLooksUntilLetGo = 5;
constexpr timeval kPatienceWithOurselves{.tv_sec = 0, .tv_usec = 50'000};

template <class Value>
Value option_of(int fd, int option, Value otherwise) {
  Value value{};
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : otherwise;
}

// Whether there is a connection to shut down: not before it is begun, nor after its end.
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
    if (domain != AF_INET && domain != AF_INET6) continue;  // what is no TCP there neither listens nor has a TCP_INFO
    act(fd, option_of(fd, SO_ACCEPTCONN, 0) == 1 ? TcpSocket::kListener : TcpSocket::kConnection,
        option_of<std::uint64_t>(fd, SO_COOKIE, 0));
  }
}

// A connection to `address` that says it is number `sequence`, and ends.
void connect_and_end(const sockaddr_storage& address, socklen_t length, std::int64_t sequence) {
  const int fd = ::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatienceWithOurselves, sizeof kPatienceWithOurselves);  // of connect() too
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

// It takes its time: it waits for kernels to leave.
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
