// The guardian's death notice, sent by a real guardian with a real worker: it must not be sent before that worker is reaped.
#include "launcher/guardian/last_word.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <boost/asio/io_context.hpp>

#include "common/system/descriptor.hpp"
#include "launcher/guardian/guardian_link.hpp"

namespace ddprun::guardian {
namespace {

// A UDP port of this machine at which the test expects a death notice.
class OtherNode {
 public:
  OtherNode() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket_.get(), any, size), 0);
    EXPECT_EQ(::getsockname(socket_.get(), any, &size), 0);
    std::memcpy(&word_.to, &address, sizeof address);
    word_.to_size = size;
    word_.size = static_cast<std::uint32_t>(std::string_view(kText).copy(word_.text.data(), word_.text.size()));
  }
  const LastWord& word() const { return word_; }
  // The messages so far, or within that time. Each is acknowledged, so that it is not sent again.
  std::string heard(int within_ms) {
    pollfd polled{socket_.get(), POLLIN, 0};
    if (::poll(&polled, 1, within_ms) <= 0) return "";
    std::string text(256, '\0');
    sockaddr_storage from{};
    socklen_t from_size = sizeof from;
    auto* const any = reinterpret_cast<sockaddr*>(&from);
    const ssize_t size = ::recvfrom(socket_.get(), text.data(), text.size(), 0, any, &from_size);
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    EXPECT_EQ(::sendto(socket_.get(), text.data(), text.size(), 0, any, from_size), size);
    return text;
  }

  static constexpr const char* kText = "ddprun farewell";

 private:
  Descriptor socket_{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  LastWord word_{};
};

// The number of the system call that blocks the process, or -1 if none does.
long call_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/syscall");
  long number = -1;
  file >> number;
  return file ? number : -1;
}

// A traced process stays a zombie until its tracer, this thread, has reaped it. Its parent cannot reap it before.
TEST(LastWord, IsSaidWhenEverythingBelowTheGuardianIsReaped) {
  OtherNode other_node;
  boost::asio::io_context io;
  const GuardianProcess process = start_guardian(-1, {});
  pid_t worker = -1;
  std::optional<GuardianLink> agent;
  const auto on_notice = [&](const Notice& notice) {
    if (notice.kind == Notice::Kind::kStarted) worker = notice.pid;
  };
  agent.emplace(io, process, on_notice, [] { ADD_FAILURE() << "the guardian is dead"; });
  const Descriptor nowhere(::open("/dev/null", O_RDWR | O_CLOEXEC));
  SpawnRequest request;
  request.arguments = {"/bin/sleep", "1000"};
  agent->spawn(0, request, {.standard_output = nowhere.get(), .standard_error = nowhere.get()});
  agent->entrust(other_node.word());
  while (worker < 0) io.run_one();
  const bool traced = ::ptrace(PTRACE_SEIZE, worker, nullptr, nullptr) == 0;
  std::thread agent_dies([&] { agent.reset(); });
  if (traced) {
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(worker), &info, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(info.si_status, SIGKILL);
    while (call_of(process.pid) != SYS_wait4) std::this_thread::yield();
    EXPECT_EQ(other_node.heard(0), "") << "a worker is not reaped yet";
    EXPECT_EQ(::waitpid(worker, nullptr, __WALL), worker);
  }
  EXPECT_EQ(other_node.heard(30000), OtherNode::kText);
  agent_dies.join();
  if (!traced) GTEST_SKIP() << "this machine lets nobody trace";
}

}  // namespace
}  // namespace ddprun::guardian
