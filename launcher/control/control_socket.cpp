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

#include "common/system/close_on_exec.hpp"
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
constexpr std::chrono::milliseconds kSoonest{100};    // after the start of the job
constexpr std::chrono::milliseconds kLooksAgain{10};  // and later, each time twice as long
constexpr std::chrono::milliseconds kLooksAgainAtMost{1000};

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

  Impl(boost::asio::io_context& context, std::vector<fs::path> places, Hooks chosen)
      : io(context), folders(std::move(places)), hooks(std::move(chosen)), start(context, kSoonest), acceptor(context) {}

  void listen_soon() {
    start.async_wait([self = weak_from_this()](const error_code& error) {
      const auto impl = self.lock();
      if (impl && !error) impl->listen();
    });
  }

  void listen() {
    const auto found = std::ranges::find_if(folders, own_control_folder);
    if (found != folders.end()) listen_in(*found);
  }

  // An agent of another container, which shares this folder, may have this pid. Without a free name this one is not heard.
  std::optional<fs::path> free_name(const fs::path& folder) {
    for (int number = 0; number < kMostOfOnePid; ++number) {
      fs::path name = control_socket_of(folder, ::getpid(), number);
      if (is_free(name)) return name;
    }
    return std::nullopt;
  }

  // Does not wait: connect() blocks while the backlog of a stopped agent is full. Then it returns EAGAIN, and the name is
  // taken.
  bool is_free(const fs::path& name) {
    error_code error;
    stream_protocol::socket probe(io);
    open_close_on_exec(probe, stream_protocol(), error);
    if (!error) probe.native_non_blocking(true, error);
    const stream_protocol::endpoint there(name.string());
    if (!error && ::connect(probe.native_handle(), there.data(), static_cast<socklen_t>(there.size())) != 0)
      error.assign(errno, boost::system::system_category());
    return error == boost::asio::error::connection_refused || error == boost::system::errc::no_such_file_or_directory;
  }

  // The lock is for that other agent, which may look for a free name at this moment: the later one looks again. It is no more
  // than an instant; a blocking flock would stop this agent beside a holder that is stopped.
  void listen_in(const fs::path& folder) {
    const Descriptor locked(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (locked.get() >= 0 && ::flock(locked.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      start.expires_after(looks_again);
      looks_again = std::min(2 * looks_again, kLooksAgainAtMost);
      return listen_soon();
    }
    try {
      if (const auto name = free_name(folder)) listen_at(*name);
    } catch (const boost::system::system_error&) {  // the name is too long for a socket
    }
  }

  void listen_at(const fs::path& name) {
    // Nobody looks for this name. Who finds a socket that refuses takes it for a dead agent's, and removes it.
    const fs::path deaf = name.string() + "+";
    const stream_protocol::endpoint endpoint(deaf.string());
    error_code error;
    for (const fs::path& before : {name, deaf}) fs::remove(before, ignored);  // of a process that had this pid
    acceptor.open(endpoint.protocol(), error);
    if (!error) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!error) acceptor.bind(endpoint, error);
    if (error) return;
    file = deaf;
    acceptor.listen(kMostClients, error);
    if (error || ::rename(deaf.c_str(), name.c_str()) != 0) return;
    file = name;
    accept();
  }

  void accept() {
    acceptor.async_accept([self = weak_from_this()](const error_code& error, stream_protocol::socket socket) {
      const auto impl = self.lock();
      if (!impl || error == boost::asio::error::operation_aborted) return;
      if (!error && impl->clients < kMostClients && is_users_own(socket.native_handle())) impl->serve(std::move(socket));
      // With no descriptor left, accept() would fail again at once and keep the agent busy: it is deaf from then on.
      if (!error || error == boost::asio::error::connection_aborted) impl->accept();
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

  // Closes the connection when the client takes longer.
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
  stream_protocol::acceptor acceptor;
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
