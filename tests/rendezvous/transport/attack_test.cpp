// Tests attacks over real sockets. Connections without the token are refused or closed within the limits, and members can still
// connect.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <dirent.h>

#include <algorithm>
#include <cstdlib>

#include "rendezvous/transport/net.hpp"

namespace ddprun::test {
namespace {

using std::chrono::milliseconds;

class Attack : public testing::Test {
 protected:
  TransportLimits limits_;
  Net net_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Transport> agent_ = net_.transport();
  std::vector<std::shared_ptr<Connection>> mine_;

  void open() { coordinator_ = std::make_unique<Coordinator>(net_, limits_); }
  std::uint16_t port() const { return coordinator_->port(); }

  void member_joins() {
    const std::size_t before = coordinator_->members.size();
    mine_.push_back(opened(net_.finish_call(net_.call(*agent_, to(port())))));
    ASSERT_TRUE(mine_.back());
    ASSERT_TRUE(net_.run_until([&] { return coordinator_->members.size() == before + 1; }));
  }
  bool refused(RawPeer& peer) {
    return net_.run_until([&] { return peer.closed(); });
  }
};

// A real member with a TLS session but without a Connection object, so that a test can send its bytes one by one.
struct RawMember {
  explicit RawMember(std::uint16_t port)
      : peer(port), keys(derive_keys({kToken, "job", 1, new_instance_id()})), tls(keys->open(TlsRole::kClient)) {
    tls->start(hello);
    peer.send(hello);
  }
  // Waits for the coordinator's first message, and completes the member's handshake.
  bool finish(Net& net) {
    std::string ignored;
    const bool answered = net.run_until([&] {
      tls->receive(peer.receive(), ignored, rest);
      return tls->failure() != PeerFault::kNone || !rest.empty();
    });
    return answered && peer.send(rest);
  }
  void send(std::string_view plaintext) {
    std::string bytes;
    tls->send(plaintext, bytes);
    peer.send(bytes);
    rest += bytes;
  }

  RawPeer peer;
  std::unique_ptr<TlsKeys> keys;
  std::unique_ptr<TlsSession> tls;
  std::string hello;
  std::string rest;  // the bytes that the member sends after the coordinator's first message has arrived
};

std::string frame_of(std::string_view content) {
  std::string frame;
  append_frame(content, frame);
  return frame;
}

TEST_F(Attack, HttpAndGarbageAreClosed) {
  open();
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\nHost: node0\r\n\r\n"), std::string(300, '\xa5'),
                                  std::string("\x16\x03\x01\x00\x05hello", 10), std::string(5, '\0')}) {
    RawPeer peer(port());
    ASSERT_TRUE(peer.send(text));
    EXPECT_TRUE(refused(peer)) << text;
  }
  EXPECT_EQ(net_.logged("no TLS"), 1U);  // one log line for three connections
  EXPECT_GE(coordinator_->transport->bad_peers().count(PeerFault::kNotTls), 3U);
  member_joins();
  EXPECT_EQ(coordinator_->members.size(), 1U);
}

TEST_F(Attack, ReplayedSessionIsRefused) {
  open();
  RawMember member(port());
  ASSERT_TRUE(member.finish(net_));
  member.send(frame_of("round 7: stop"));
  ASSERT_TRUE(net_.run_until([&] { return coordinator_->members.size() == 1; }));
  Inbox inbox;
  coordinator_->members.front()->start(inbox.handlers());
  ASSERT_TRUE(net_.run_until([&] { return inbox.frames.size() == 1; }));

  RawPeer whole(port());
  ASSERT_TRUE(whole.send(member.hello + member.rest));
  EXPECT_TRUE(refused(whole));
  RawPeer in_turn(port());  // sends the second part only after the reply to the first part, as a member does
  ASSERT_TRUE(in_turn.send(member.hello));
  ASSERT_TRUE(net_.run_until([&] { return !in_turn.receive().empty(); }));
  ASSERT_TRUE(in_turn.send(member.rest));
  EXPECT_TRUE(refused(in_turn));
  EXPECT_EQ(coordinator_->members.size(), 1U);
  // Sends the same record twice within its session.
  std::string again;
  member.tls->send(frame_of("x"), again);
  member.peer.send(again + again);
  ASSERT_TRUE(net_.run_until([&] { return inbox.closed.has_value(); }));
  EXPECT_EQ(inbox.closed->fault, PeerFault::kBroken);
  EXPECT_EQ(inbox.frames.size(), 2U);
  member_joins();
}

TEST_F(Attack, ReflectedHelloIsRefused) {
  open();
  RawMember member(port());
  ASSERT_TRUE(net_.run_until([&] { return !member.peer.receive().empty(); }));
  // Both ends have the same job and token, and therefore the same keys. So an end cannot detect from the keys alone that its
  // own hello was sent back to it.
  std::string answer;
  std::string plaintext;
  const auto server = coordinator_->transport->run();  // the digest of the run id, which identifies the job
  EXPECT_EQ(server, member.keys->run());
  // Sends the member's hello back to the member's own port.
  const auto own_port = member.keys->open(TlsRole::kServer);
  EXPECT_EQ(own_port->receive(member.hello, plaintext, answer), TlsState::kFailed);
  EXPECT_EQ(own_port->failure(), PeerFault::kReflected);
  // Sends the member's hello back to the member in the same session.
  EXPECT_EQ(member.tls->receive(member.hello, plaintext, answer), TlsState::kFailed);
}

TEST_F(Attack, TooManyBytesBeforeTheTokenAreRefused) {
  open();
  RawPeer peer(port());
  ASSERT_TRUE(peer.send(std::string("\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03", 11) + std::string(8000, 'x')));
  EXPECT_TRUE(refused(peer));
  EXPECT_EQ(coordinator_->transport->bad_peers().count(PeerFault::kTooManyBytes), 1U);
  member_joins();
}

TEST_F(Attack, OversizedFrameClosesOnlyItsMember) {
  open();
  member_joins();
  RawMember member(port());
  ASSERT_TRUE(member.finish(net_));
  ASSERT_TRUE(net_.run_until([&] { return coordinator_->members.size() == 2; }));
  Inbox inbox;
  coordinator_->members.back()->start(inbox.handlers());
  member.send("\x7f\xff\xff\xff");
  ASSERT_TRUE(net_.run_until([&] { return inbox.closed.has_value(); }));
  EXPECT_EQ(inbox.closed->fault, PeerFault::kFrameTooLarge);
  EXPECT_TRUE(coordinator_->members.front()->is_open());
}

TEST_F(Attack, SlowHandshakeTimesOut) {
  limits_.handshake_time = milliseconds(200);
  open();
  RawMember recorder(port());  // The test copies this member's valid hello. Then the member sends no more bytes.
  std::vector<RawPeer> slow_peers;
  for (int i = 0; i < 5; ++i) slow_peers.emplace_back(port());
  std::size_t sent = 0;
  boost::asio::steady_timer tick(net_.io);
  const std::function<void()> drip = [&] {
    for (RawPeer& slow_peer : slow_peers) slow_peer.send(recorder.hello.substr(sent, 1));
    ++sent;
    tick.expires_after(milliseconds(5));
    tick.async_wait([&](const boost::system::error_code& error) {
      if (!error && sent < recorder.hello.size() - 1) drip();
    });
  };
  drip();
  ASSERT_TRUE(net_.run_until([&] { return coordinator_->transport->bad_peers().count(PeerFault::kSilent) == 6; }));
  EXPECT_LT(sent, recorder.hello.size());  // the sixth silent peer is `recorder` itself
  for (RawPeer& slow_peer : slow_peers) EXPECT_TRUE(slow_peer.closed());
  EXPECT_EQ(net_.logged("in time"), 1U);
  member_joins();
}

std::size_t resident_kilobytes() {
  std::size_t pages = 0;
  if (FILE* const file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    if (std::fscanf(file, "%*u %zu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / 1024;
}

TEST_F(Attack, IdleConnectionsBlockNoMember) {
  const bool long_tests = std::getenv("DDPRUN_LONG_TESTS") != nullptr;
  const std::size_t idle = long_tests ? 10000 : 2000;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit before = limit;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < idle + 1500) GTEST_SKIP() << "ulimit -Hn is " << limit.rlim_max;
  // The time limit is long, so that only an eviction can remove idle connections.
  limits_.handshake_time = std::chrono::minutes(10);
  limits_.unauthenticated = 1000;
  open();
  member_joins();
  const std::size_t memory = resident_kilobytes();
  {
    std::vector<RawPeer> crowd;
    crowd.reserve(idle);
    while (crowd.size() < idle) {
      crowd.emplace_back(port(), crowd.size() % 2 == 0 ? "127.0.0.2" : "127.0.0.3");
      ASSERT_TRUE(crowd.back().connected());
      if (crowd.size() % 500 != 0) continue;
      const auto rejected = [&] { return coordinator_->transport->bad_peers().count(PeerFault::kCrowdedOut); };
      ASSERT_TRUE(net_.run_until([&] { return rejected() + limits_.unauthenticated >= crowd.size(); }));
    }
    EXPECT_LE(coordinator_->listener->unauthenticated(), limits_.unauthenticated);
    member_joins();
    EXPECT_EQ(net_.logged("that have not presented the token"), 1U);
    EXPECT_LT(resident_kilobytes(), memory + (32 << 10));
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  member_joins();
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count - 3;  // does not count ".", ".." and the descriptor of the folder itself
}

// A child process that opens `count` connections and keeps them open until this object is destroyed.
class Flood {
 public:
  Flood(std::uint16_t port, int count) {
    if (::pipe(pipe_) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(pipe_[1]);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      for (int i = 0; i < count; ++i) {
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) break;
      }
      char byte = 0;
      [[maybe_unused]] const ssize_t end = ::read(pipe_[0], &byte, 1);
      ::_exit(0);
    }
    ::close(pipe_[0]);
  }
  ~Flood() {
    ::close(pipe_[1]);
    ::waitpid(pid_, nullptr, 0);
  }
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

 private:
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
};

// Limits this process to `count` free file descriptors. It also uses up the gaps between the used descriptors.
class FreeDescriptors {
 public:
  explicit FreeDescriptors(int count) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(highest()) + 1;
    ::setrlimit(RLIMIT_NOFILE, &now);
    for (int fd = open_one(); fd >= 0; fd = open_one()) fillers_.push_back(fd);
    allow(count);
  }
  ~FreeDescriptors() {
    for (const int fd : fillers_) ::close(fd);
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  FreeDescriptors(const FreeDescriptors&) = delete;
  FreeDescriptors& operator=(const FreeDescriptors&) = delete;
  void allow(int more) {
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    now.rlim_cur += static_cast<rlim_t>(more);
    ::setrlimit(RLIMIT_NOFILE, &now);
  }

 private:
  static int open_one() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
  static int highest() {
    int most = 0;
    DIR* const folder = ::opendir("/proc/self/fd");
    while (const dirent* entry = ::readdir(folder)) most = std::max(most, std::atoi(entry->d_name));
    ::closedir(folder);
    return most;
  }
  rlimit before_{};
  std::vector<int> fillers_;
};

TEST_F(Attack, IdleConnectionsAreEvictedWithoutDescriptors) {
  open();
  member_joins();
  const Flood flood(port(), 300);
  FreeDescriptors few(30);
  ASSERT_TRUE(net_.run_until([&] { return coordinator_->transport->bad_peers().count(PeerFault::kCrowdedOut) > 200; }));
  // The last thirty connections use all file descriptors. The test needs one more descriptor for the member's end, which is in
  // this process too.
  few.allow(1);
  member_joins();
}

TEST_F(Attack, FloodIsRejectedWithoutDescriptorsOrSpinning) {
  open();
  member_joins();
  {
    const Flood flood(port(), 50);
    const FreeDescriptors none(0);
    ASSERT_TRUE(net_.run_until([&] { return coordinator_->transport->bad_peers().count(PeerFault::kNoDescriptors) == 50; }));
    net_.io.restart();
    EXPECT_EQ(net_.io.poll(), 0U);  // no handler is ready, so the waiting connection causes no busy loop
    EXPECT_EQ(net_.logged("ulimit -n"), 1U);
  }
  member_joins();
}

TEST_F(Attack, FloodLeavesNoMemoryBehind) {
  open();
  const std::size_t before = open_descriptors();
  for (int round = 0; round < 5; ++round) {
    std::vector<RawPeer> flood;
    for (int i = 0; i < 200; ++i) flood.emplace_back(port());
    net_.run_ready();
  }
  member_joins();
  ASSERT_TRUE(net_.run_until([&] { return coordinator_->listener->unauthenticated() == 0; }));
  EXPECT_LE(open_descriptors(), before + 4);
}

}  // namespace
}  // namespace ddprun::test
