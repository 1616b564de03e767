// Implementation of directory_arbiter.hpp.
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

namespace ddprun::rendezvous {
namespace {

constexpr const char* kFolder = "arbiter";

// The lock's holder according to its file; empty if the lock is free.
std::string holder_of_lock(int directory) {
  const int fd = ::openat(directory, "lock", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return "";
  std::string text(1024, '\0');
  const bool refused = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  const ssize_t size = refused ? ::pread(fd, text.data(), text.size(), 0) : 0;
  ::close(fd);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? "" : text.substr(0, end);  // no '\n': the lock is free, or the holder is still writing
}

}  // namespace

struct DirectoryArbiter::State {
  explicit State(std::filesystem::path of) : path(std::move(of)) {}
  ~State() {
    if (directory >= 0) ::close(directory);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void probe();
  ArbiterReply decide(const std::string& place, const std::string& self) const;

  std::filesystem::path path;
  int directory = -1;  // used on the queue's thread; set as soon as it is known to be shared
  std::atomic<std::uint64_t> holder{0};
};

void DirectoryArbiter::State::probe() {
  const int fd = directory >= 0 ? directory : ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  const std::string found = holder_of_lock(fd);
  if (!found.empty()) {
    directory = fd;
    holder = mark_of(found);
  } else if (fd != directory) {
    ::close(fd);
  }
}

// The symbolic link's target names the winner. A link is created atomically, and a node that asks again finds its own answer.
ArbiterReply DirectoryArbiter::State::decide(const std::string& place, const std::string& self) const {
  const std::string file =
      std::string(kFolder) + "/" + place.substr(0, place.find('/')) + "-" + place.substr(place.find('/') + 1);
  const auto fails = [&] {
    return ArbiterReply{BallotAnswer::kNone, "the run directory " + path.string() +
                                                 ", which both nodes share, could not be asked: " + std::strerror(errno)};
  };
  if (::mkdirat(directory, kFolder, 0755) != 0 && errno != EEXIST) return fails();
  if (::symlinkat(self.c_str(), directory, file.c_str()) == 0) return {BallotAnswer::kMine, ""};
  if (errno != EEXIST) return fails();
  std::array<char, 256> there{};
  const ssize_t size = ::readlinkat(directory, file.c_str(), there.data(), there.size());
  if (size < 0) return fails();
  const bool is_own = std::string_view(there.data(), static_cast<std::size_t>(size)) == self;
  return {is_own ? BallotAnswer::kMine : BallotAnswer::kOthers, ""};
}

DirectoryArbiter::DirectoryArbiter(boost::asio::io_context& io, std::filesystem::path directory)
    : io_(io),
      state_(std::make_shared<State>(std::move(directory))),
      queue_([&io](FileQueue::Work then) { boost::asio::post(io, std::move(then)); }) {}

DirectoryArbiter::~DirectoryArbiter() = default;

std::uint64_t DirectoryArbiter::probe(milliseconds patience) {
  queue_.add([state = state_] { state->probe(); });
  queue_.is_done_within(patience);
  return state_->holder;
}

void DirectoryArbiter::ask(const std::string& place, const std::string& self, milliseconds limit, Then then) {
  struct Question {
    Question(boost::asio::io_context& io, Then to) : timer(io), then(std::move(to)) {}
    void answer(ArbiterReply said) {
      timer.cancel();
      if (auto act = std::exchange(then, {})) act(std::move(said));
    }
    boost::asio::steady_timer timer;
    Then then;
    ArbiterReply reply{};
  };
  const auto question = std::make_shared<Question>(io_, std::move(then));
  question->timer.expires_after(limit);
  question->timer.async_wait([question, path = state_->path, limit](const boost::system::error_code& error) {
    if (error) return;
    question->answer({BallotAnswer::kNone, "the run directory " + path.string() +
                                               ", which both nodes share, did not answer within " +
                                               std::to_string(limit.count()) + " ms"});
  });
  queue_.add([question, place, self, state = state_] { question->reply = state->decide(place, self); },
             [question] { question->answer(question->reply); });
}

}  // namespace ddprun::rendezvous
