// Provides the event loop and the transports for the tests of this folder. All ends of each connection are in this process. A
// test waits for events, and fails after a minute without an event.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "rendezvous/transport/raw_peer.hpp"
#include "rendezvous/transport/transport.hpp"

namespace ddprun::test {

inline constexpr const char* kToken = "5f0c6c1e9a47b83d20d1e4f7a95b3c68f21d0e7b4a8896c35d1f2e0b7a4c9d83";
inline constexpr const char* kOtherToken = "0c6c1e9a47b83d20d1e4f7a95b3c68f21d0e7b4a8896c35d1f2e0b7a4c9d835f";

struct Net {
  boost::asio::io_context io;
  std::vector<std::string> log;

  // Runs the loop until `holds` returns true. Returns false if no event happens for a minute, or if no event can happen any
  // more.
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

  // Starts to connect. While the loop runs, the returned object is set to the result.
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

// Returns the socket descriptors that child processes of this process would inherit.
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

// The listening port of a coordinator, and the members that it has accepted.
struct Coordinator {
  Coordinator(Net& net, TransportLimits limits = {}, ListenOptions options = {})
      : transport(net.transport(kToken, "job", limits)) {
    if (options.address.empty()) options.address = "127.0.0.1";
    listener = transport->listen(std::move(options),
                                 [this](std::shared_ptr<Connection> member) { members.push_back(std::move(member)); });
  }
  std::uint16_t port() const { return listener->local().port(); }

  std::unique_ptr<Transport> transport;
  std::shared_ptr<Listener> listener;
  std::vector<std::shared_ptr<Connection>> members;
};

// Records the frames that one end of a connection receives, and the reason why the connection closes.
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
