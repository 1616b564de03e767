#include "rendezvous/shell/directory_arbiter.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/system/descriptor.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr const char* kFolder = "arbiter";

// Returns the first line of the lock file, which describes the process that holds the lock. The result is empty if the lock is
// free.
std::string holder_of_lock(int directory) {
  const Descriptor lock(::openat(directory, "lock", O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (lock.get() < 0) return "";
  std::string text(1024, '\0');
  const bool refused = ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  const ssize_t size = refused ? ::pread(lock.get(), text.data(), text.size(), 0) : 0;
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? "" : text.substr(0, end);  // without '\n', the lock is free or its holder is still writing
}

}  // namespace

struct DirectoryArbiter::State {
  explicit State(std::filesystem::path of) : path(std::move(of)) {}

  void probe();
  ArbiterReply decide(const std::string& key, const std::string& self) const;

  std::filesystem::path path;
  // the open run directory; unset until a process holds its lock. Used only on the thread of the queue.
  Descriptor directory;
  std::atomic<std::uint64_t> holder{0};
};

void DirectoryArbiter::State::probe() {
  const bool known = directory.get() >= 0;
  if (!known) directory = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) return;
  const std::string found = holder_of_lock(directory.get());
  if (!found.empty()) {
    holder = mark_of(found);
  } else if (!known) {
    directory = Descriptor();
  }
}

// The arbiter's decision is the target of the symbolic link: the winner's node id. symlink(2) is atomic, so only one node can
// create the link. A node that repeats its query finds the link with its own id.
ArbiterReply DirectoryArbiter::State::decide(const std::string& key, const std::string& self) const {
  const std::string file = std::string(kFolder) + "/" + key.substr(0, key.find('/')) + "-" + key.substr(key.find('/') + 1);
  const auto fails = [&] {
    return ArbiterReply{BallotAnswer::kNone, "the run directory " + path.string() +
                                                 ", which both nodes share, could not be accessed: " + std::strerror(errno)};
  };
  if (::mkdirat(directory.get(), kFolder, 0755) != 0 && errno != EEXIST) return fails();
  if (::symlinkat(self.c_str(), directory.get(), file.c_str()) == 0) return {BallotAnswer::kMine, ""};
  if (errno != EEXIST) return fails();
  std::array<char, 256> stored{};
  const ssize_t size = ::readlinkat(directory.get(), file.c_str(), stored.data(), stored.size());
  if (size < 0) return fails();
  const bool is_own = std::string_view(stored.data(), static_cast<std::size_t>(size)) == self;
  return {is_own ? BallotAnswer::kMine : BallotAnswer::kOthers, ""};
}

DirectoryArbiter::DirectoryArbiter(boost::asio::io_context& io, std::filesystem::path directory)
    : io_(io),
      state_(std::make_shared<State>(std::move(directory))),
      queue_([&io](FileQueue::Work then) { boost::asio::post(io, std::move(then)); }) {}

DirectoryArbiter::~DirectoryArbiter() = default;

std::uint64_t DirectoryArbiter::probe(milliseconds patience) {
  queue_.add([state = state_] { state->probe(); });
  queue_.wait_for(patience);
  return state_->holder;
}

void DirectoryArbiter::query(const std::string& key, const std::string& self, milliseconds limit, Then then) {
  struct Query {
    Query(boost::asio::io_context& io, Then to) : timer(io), then(std::move(to)) {}
    void answer(ArbiterReply result) {
      timer.cancel();
      if (auto act = std::exchange(then, {})) act(std::move(result));
    }
    boost::asio::steady_timer timer;
    Then then;
    ArbiterReply reply{};
  };
  const auto request = std::make_shared<Query>(io_, std::move(then));
  request->timer.expires_after(limit);
  request->timer.async_wait([request, path = state_->path, limit](const boost::system::error_code& error) {
    if (error) return;
    request->answer({BallotAnswer::kNone, "the run directory " + path.string() +
                                              ", which both nodes share, did not respond within " +
                                              std::to_string(limit.count()) + " ms"});
  });
  queue_.add([request, key, self, state = state_] { request->reply = state->decide(key, self); },
             [request] { request->answer(request->reply); });
}

}  // namespace ddprun::rendezvous
