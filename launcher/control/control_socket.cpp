// Implementation of control_socket.hpp.
#include "launcher/control/control_socket.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "common/system/descriptor.hpp"
#include "launcher/control/control_folder.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using boost::asio::local::stream_protocol;
using boost::system::error_code;

constexpr int kMostClients = 16;
constexpr int kMostOfOnePid = 64;
constexpr std::size_t kMostBytes = 4096;
constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::seconds kPatienceWithNodes{40};
constexpr std::chrono::milliseconds kSoonest{100};    // delay after the start of the job
constexpr std::chrono::milliseconds kLooksAgain{10};  // first retry interval, doubled each time
constexpr std::chrono::milliseconds kLooksAgainAtMost{1000};
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};

bool is_users_own(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace

struct ControlSocket::Impl : std::enable_shared_from_this<ControlSocket::Impl> {
  struct Client {
    Client(stream_protocol::socket connected, boost::asio::io_context& io) : socket(std::move(connected)), patience(io) {}
    stream_protocol::socket socket;
    boost::asio::steady_timer patience;
    std::string request;
    std::string answer;
  };

  // A listening socket.
  struct Door {
    explicit Door(boost::asio::io_context& io) : acceptor(io), pause(io) {}
    stream_protocol::acceptor acceptor;
    boost::asio::steady_timer pause;
  };

  Impl(boost::asio::io_context& context, std::vector<fs::path> places, Hooks chosen)
      : io(context),
        folders(std::move(places)),
        hooks(std::move(chosen)),
        start(context, kSoonest),
        in_folder(context),
        by_name(context) {}

  void listen_soon() {
    start.async_wait([self = weak_from_this()](const error_code& error) {
      const auto impl = self.lock();
      if (impl && !error) impl->listen();
    });
  }

  void listen() {
    if (!by_name.acceptor.is_open()) listen_by_name();
    const auto found = std::ranges::find_if(folders, own_control_folder);
    if (found != folders.end()) return listen_in(*found);
    if (!by_name.acceptor.is_open()) look_again();
  }

  void look_again() {
    start.expires_after(looks_again);
    looks_again = std::min(2 * looks_again, kLooksAgainAtMost);
    listen_soon();
  }

  // Listens at a name that does not depend on a folder (control_folder.hpp).
  void listen_by_name() {
    const stream_protocol::endpoint endpoint('\0' + abstract_name_of(::getpid()));
    error_code error;
    by_name.acceptor.open(endpoint.protocol(), error);
    if (!error) ::fcntl(by_name.acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!error) by_name.acceptor.bind(endpoint, error);
    if (!error) by_name.acceptor.listen(kMostClients, error);
    if (!error) return accept(by_name);
    by_name.acceptor.close(error);
  }

  // An agent in another container that shares this folder may have the same pid. If no name is free, this agent has no socket
  // in the folder.
  std::optional<fs::path> free_name(const fs::path& folder) {
    for (int number = 0; number < kMostOfOnePid; ++number) {
      fs::path name = control_socket_of(folder, ::getpid(), number);
      if (is_free(name)) return name;
    }
    return std::nullopt;
  }

  // Non-blocking: a stopped agent with a full listen queue would block this agent.
  static bool is_free(const fs::path& name) {
    const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const stream_protocol::endpoint endpoint(name.string());
    return probe.get() >= 0 && ::connect(probe.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 &&
           (errno == ECONNREFUSED || errno == ENOENT);
  }

  // The lock excludes another agent with the same pid that looks for a free name at the same time; the later one retries. The
  // lock is held very briefly. It is still not taken with a blocking flock, which would block this agent if the holder is
  // stopped.
  void listen_in(const fs::path& folder) {
    const Descriptor locked(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (locked.get() >= 0 && ::flock(locked.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return look_again();
    }
    try {
      const auto name = free_name(folder);
      if (name && listen_at(*name)) return;
      if (!by_name.acceptor.is_open()) look_again();  // out of descriptors, so neither socket could be created
    } catch (const boost::system::system_error&) {    // the name is too long for a socket
    }
  }

  bool listen_at(const fs::path& name) {
    stream_protocol::acceptor& acceptor = in_folder.acceptor;
    // Clients do not look for this name. They would regard a socket that refuses connections as that of a dead agent and remove
    // it. So the socket gets its real name only after listen().
    const fs::path deaf = name.string() + "+";
    const stream_protocol::endpoint endpoint(deaf.string());
    error_code error;
    for (const fs::path& before : {name, deaf}) fs::remove(before, ignored);  // left by an earlier process with this pid
    acceptor.open(endpoint.protocol(), error);
    if (!error) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) {
      file = deaf;
      acceptor.listen(kMostClients, error);
    }
    if (error || ::rename(deaf.c_str(), name.c_str()) != 0) {
      acceptor.close(error);
      return false;
    }
    file = name;
    accept(in_folder);
    return true;
  }

  // `door` must be a member, since the callback uses it.
  void accept(Door& door) {
    door.acceptor.async_accept([self = weak_from_this(), &door](const error_code& error, stream_protocol::socket socket) {
      const auto impl = self.lock();
      if (!impl || error == boost::asio::error::operation_aborted) return;
      if (!error && impl->clients < kMostClients && is_users_own(socket.native_handle())) impl->serve(std::move(socket));
      if (!error || error == boost::asio::error::connection_aborted) return impl->accept(door);
      impl->accept_later(door);
    });
  }

  // Descriptors or memory are exhausted. Without the pause accept() would fail again immediately and keep the agent busy.
  void accept_later(Door& door) {
    door.pause.expires_after(kPauseWithoutDescriptors);
    door.pause.async_wait([self = weak_from_this(), &door](const error_code& error) {
      const auto impl = self.lock();
      if (impl && !error) impl->accept(door);
    });
  }

  void serve(stream_protocol::socket socket) {
    ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    ++clients;
    const std::shared_ptr<Client> client(new Client(std::move(socket), io), [self = weak_from_this()](Client* gone) {
      delete gone;
      if (const auto impl = self.lock()) --impl->clients;
    });
    watch(client, kPatience);
    boost::asio::async_read_until(client->socket, boost::asio::dynamic_buffer(client->request, kMostBytes), '\n',
                                  [self = weak_from_this(), client](const error_code& error, std::size_t length) {
                                    const auto impl = self.lock();
                                    if (impl && !error) impl->answer(client, client->request.substr(0, length - 1));
                                  });
  }

  // Closes the connection after `patience`.
  static void watch(const std::shared_ptr<Client>& client, std::chrono::seconds patience) {
    client->patience.expires_after(patience);
    client->patience.async_wait([weak = std::weak_ptr(client)](const error_code& error) {
      error_code closed;
      if (const auto slow = weak.lock(); slow && !error) slow->socket.close(closed);
    });
  }

  void answer(const std::shared_ptr<Client>& client, const std::string& request) {
    if (request.starts_with(kAskNodes) && hooks.nodes) {
      watch(client, kPatienceWithNodes);
      return hooks.nodes(request.substr(std::strlen(kAskNodes)), [self = weak_from_this(), client](std::string text) {
        if (const auto impl = self.lock()) impl->send(client, {}, std::move(text));
      });
    }
    if (request == kAskGpus && hooks.gpus) {
      return hooks.gpus([self = weak_from_this(), client](std::string text) {
        if (const auto impl = self.lock()) impl->send(client, {}, std::move(text));
      });
    }
    if (request == kAskStatus) return send(client, request, hooks.status());
    const bool stops = request == kAskStop || request == kAskStopNow;
    send(client, request, stops ? R"({"stops":true})" : R"({"error":"unknown request"})");
  }

  void send(const std::shared_ptr<Client>& client, const std::string& request, std::string text) {
    client->answer = std::move(text) + "\n";
    boost::asio::async_write(client->socket, boost::asio::buffer(client->answer),
                             [self = weak_from_this(), client, request](const error_code&, std::size_t) {
                               const auto impl = self.lock();
                               if (!impl || (request != kAskStop && request != kAskStopNow)) return;
                               impl->hooks.stop(request == kAskStopNow);
                             });
  }

  boost::asio::io_context& io;
  std::vector<fs::path> folders;
  Hooks hooks;
  boost::asio::steady_timer start;
  std::chrono::milliseconds looks_again = kLooksAgain;
  Door in_folder, by_name;
  fs::path file;
  std::error_code ignored;
  int clients = 0;
};

ControlSocket::ControlSocket(boost::asio::io_context& io, std::vector<fs::path> folders, Hooks hooks)
    : impl_(std::make_shared<Impl>(io, std::move(folders), std::move(hooks))) {
  impl_->listen_soon();
}

ControlSocket::~ControlSocket() {
  if (!impl_->file.empty()) ::unlink(impl_->file.c_str());
}

}  // namespace ddprun
