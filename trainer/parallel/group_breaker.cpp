// See group_breaker.hpp.
//
// Note [Shutting down what Gloo owns]
// shutdown() on a descriptor that Gloo will close itself is safe from any thread: it ends the connection, not the descriptor. A
// number that has been closed and given to something else meanwhile is either no socket or one of the next group, which does
// not exist while the group is broken. With a channel to the agent, workers have no TCP connections but their groups'.
#include "trainer/parallel/group_breaker.hpp"

#include <sys/socket.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>

namespace ddprun::trainer {
namespace {

// While a thread is making connections nothing tells when the next one is there.
constexpr std::chrono::milliseconds kLookAgain{5};

template <class Value>
Value option_of(int fd, int option, Value otherwise) {
  Value value{};
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : otherwise;
}

bool is_tcp_connection(int fd) {
  const int domain = option_of(fd, SO_DOMAIN, -1);
  return (domain == AF_INET || domain == AF_INET6) && option_of(fd, SO_TYPE, -1) == SOCK_STREAM &&
         option_of(fd, SO_ACCEPTCONN, 1) == 0;
}

void for_each_tcp_connection(const std::function<void(int fd, std::uint64_t cookie)>& act) {
  std::error_code gone;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", gone), end; !gone && entry != end; entry.increment(gone)) {
    const std::string name = entry->path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd >= 0 && is_tcp_connection(fd)) act(fd, option_of<std::uint64_t>(fd, SO_COOKIE, 0));
  }
}

}  // namespace

GroupBreaker::GroupBreaker() {
  for_each_tcp_connection([this](int, std::uint64_t cookie) { others_.insert(cookie); });
}

void GroupBreaker::shut_connections() const {
  for_each_tcp_connection([this](int fd, std::uint64_t cookie) {
    if (!others_.contains(cookie)) ::shutdown(fd, SHUT_RDWR);
  });
}

void GroupBreaker::break_group() {
  if (thread_.joinable()) return;  // broken already
  shut_connections();
  thread_ = std::jthread([this](const std::stop_token& mended) {
    std::unique_lock lock(mutex_);
    while (!mended_.wait_for(lock, mended, kLookAgain, [] { return false; }) && !mended.stop_requested()) shut_connections();
  });
}

void GroupBreaker::mend() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  thread_ = {};
}

}  // namespace ddprun::trainer
