// Tests that a guardian sends its death notice only after its workers are reaped. Guardian and worker are real processes.
#include "launcher/guardian/death_notice.hpp"

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

// Acts as another node of the job: it has a UDP socket on this machine that receives the death notice.
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
    std::memcpy(&notice_.to, &address, sizeof address);
    notice_.to_size = size;
    notice_.size = static_cast<std::uint32_t>(std::string_view(kText).copy(notice_.text.data(), notice_.text.size()));
  }
  const DeathNotice& notice() const { return notice_; }
  // Returns the next message, or an empty text if none arrives within `within_ms` milliseconds. Acknowledges the message, so
  // that the guardian does not send it again.
  std::string received(int within_ms) {
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
  DeathNotice notice_{};
};

// Returns the number of the system call in which the process blocks, or -1 if it does not block in a system call.
long call_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/syscall");
  long number = -1;
  file >> number;
  return file ? number : -1;
}

// This thread traces the worker. The kernel keeps a killed worker as a zombie until its tracer has reaped it. So the guardian
// cannot reap the worker before this thread reaps it.
TEST(DeathNotice, IsSentAfterAllDescendantsAreReaped) {
  OtherNode other_node;
  boost::asio::io_context io;
  const GuardianProcess process = start_guardian(-1, {});
  struct Agent final : GuardianLink::Agent {
    void on_notice(const Notice& notice) override {
      if (notice.kind == Notice::Kind::kStarted) worker = notice.pid;
    }
    void on_guardian_death() override { ADD_FAILURE() << "the guardian is dead"; }
    pid_t worker = -1;
  } events;
  const pid_t& worker = events.worker;
  std::optional<GuardianLink> agent;
  agent.emplace(io, process, events);
  const Descriptor nowhere(::open("/dev/null", O_RDWR | O_CLOEXEC));
  SpawnRequest request;
  request.arguments = {"/bin/sleep", "1000"};
  agent->spawn(0, request, {.standard_output = nowhere.get(), .standard_error = nowhere.get()});
  agent->set_death_notice(other_node.notice());
  while (worker < 0) io.run_one();
  const bool traced = ::ptrace(PTRACE_SEIZE, worker, nullptr, nullptr) == 0;
  std::thread agent_dies([&] { agent.reset(); });
  if (traced) {
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(worker), &info, WEXITED | WNOWAIT), 0);
    EXPECT_EQ(info.si_status, SIGKILL);
    while (call_of(process.pid) != SYS_wait4) std::this_thread::yield();
    EXPECT_EQ(other_node.received(0), "") << "a worker is not reaped yet";
    EXPECT_EQ(::waitpid(worker, nullptr, __WALL), worker);
  }
  EXPECT_EQ(other_node.received(30000), OtherNode::kText);
  agent_dies.join();
  if (!traced) GTEST_SKIP() << "this machine does not permit tracing";
}

}  // namespace
}  // namespace ddprun::guardian
