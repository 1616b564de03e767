// A network in one process for the transport's tests: an event loop, transports with given credentials, and raw peers that can
// violate the protocol. Waits are for an event; a minute without one fails the test.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "rendezvous/transport/transport.hpp"

namespace ddprun::test {

inline constexpr const char* kToken = "5f0c6c1e9a47b83d20d1e4f7a95b3c68f21d0e7b4a8896c35d1f2e0b7a4c9d83";
inline constexpr const char* kOtherToken = "0c6c1e9a47b83d20d1e4f7a95b3c68f21d0e7b4a8896c35d1f2e0b7a4c9d835f";

struct Net {
  boost::asio::io_context io;
  std::vector<std::string> log;

  // Runs the loop until `holds` returns true. Returns false after a minute without an event, or if no events are left.
  bool run_until(const std::function<bool()>& holds) {
    io.restart();
    while (!holds()) {
      if (io.run_one_for(std::chrono::minutes(1)) == 0) return false;
    }
    return true;
  }
  void run_ready() {
    io.restart();
    io.poll();
  }

  std::unique_ptr<Transport> transport(const char* token = kToken, const char* run_id = "job", TransportLimits limits = {},
                                       std::uint8_t version = 1) {
    return std::make_unique<Transport>(io, TlsCredentials{token, run_id, version, new_instance_id()}, limits,
                                       [this](const std::string& line) { log.push_back(line); });
  }

  std::size_t logged(const std::string& text) const {
    std::size_t count = 0;
    for (const std::string& line : log) count += line.find(text) != std::string::npos ? 1 : 0;
    return count;
  }

  // Starts a connect; the result arrives while the loop runs.
  std::shared_ptr<std::optional<ConnectResult>> call(Transport& transport, ConnectOptions options) {
    auto result = std::make_shared<std::optional<ConnectResult>>();
    boost::asio::co_spawn(io, transport.connect(std::move(options)),
                          [result](const std::exception_ptr& error, ConnectResult r) {
                            if (error) std::rethrow_exception(error);
                            *result = std::move(r);
                          });
    return result;
  }
  ConnectResult finish_call(const std::shared_ptr<std::optional<ConnectResult>>& result) {
    if (!run_until([&] { return result->has_value(); })) return ConnectFailure{ConnectFailure::Kind::kCancelled, "no result"};
    return std::move(**result);
  }
};

// Descriptors of sockets that child processes would inherit.
inline std::vector<int> inherited_sockets() {
  std::vector<int> found;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat status {};
    if (::fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) && (::fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) found.push_back(fd);
  }
  return found;
}

inline ConnectOptions to(std::uint16_t port, std::chrono::milliseconds patience = std::chrono::milliseconds(20000)) {
  ConnectOptions options;
  options.host = "127.0.0.1";
  options.port = port;
  options.patience = patience;
  return options;
}

// A blocking socket of an arbitrary peer.
class RawPeer {
 public:
  explicit RawPeer(std::uint16_t port, const char* source = nullptr) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    if (source != nullptr) {
      ::inet_pton(AF_INET, source, &address.sin_addr);
      EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }
    address.sin_port = htons(port);
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawPeer() {
    if (fd_ >= 0) ::close(fd_);
  }
  RawPeer(RawPeer&& other) noexcept : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  RawPeer& operator=(RawPeer&&) = delete;
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  bool connected() const { return connected_; }
  bool send(std::string_view bytes) {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // The available bytes; sets closed() at the end of the stream.
  std::string receive() {
    std::string bytes(64 << 10, '\0');
    const ssize_t count = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN)) closed_ = true;
    bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return bytes;
  }
  // True if the other side has closed; drops the bytes before that.
  bool closed() {
    while (!closed_ && !receive().empty()) {
    }
    return closed_;
  }

 private:
  int fd_;
  bool connected_ = false;
  bool closed_ = false;
};

// A coordinator's port, and the accepted members.
struct Coordinator {
  Coordinator(Net& net, TransportLimits limits = {}, ListenOptions options = {})
      : transport(net.transport(kToken, "job", limits)) {
    if (options.address.empty()) options.address = "127.0.0.1";
    listener = transport->listen(std::move(options),
                                 [this](std::shared_ptr<Connection> member) { members.push_back(std::move(member)); });
  }
  std::uint16_t port() const { return listener->local().port(); }

  std::unique_ptr<Transport> transport;
  std::unique_ptr<Listener> listener;
  std::vector<std::shared_ptr<Connection>> members;
};

// The other side of one connection: what arrived, and how it ended.
struct Inbox {
  std::vector<std::string> frames;
  std::optional<Closed> closed;
  Connection::Handlers handlers() {
    return {[this](std::string_view frame) { frames.emplace_back(frame); }, [this](const Closed& c) { closed = c; }};
  }
};

inline std::shared_ptr<Connection> opened(const ConnectResult& result) {
  if (!result.connection) ADD_FAILURE() << result.failure.message;
  return result.connection;
}

inline ConnectFailure failure(const ConnectResult& result) {
  if (result.connection) ADD_FAILURE() << "it got in";
  return result.failure;
}

}  // namespace ddprun::test
