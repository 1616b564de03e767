// Tests the search for TCP sockets of another process. Some sockets are found through copies of the process's descriptors, and
// other sockets through the kernel's tables.
#include "launcher/leftovers/process_sockets.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace ddprun::guardian {
namespace {

using Words = std::vector<std::string>;

TEST(TcpInodes, AreFoundByPortAtEitherEnd) {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:7149 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 x\n"
      "   1: 0100007F:C350 0100007F:7149 01 00000000:00000000 00:00000000 00000000     0        0 12 1 x\n"
      "   2: 0100007F:7149 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 13 1 x\n"
      "   3: 0100007F:0050 0100007F:C351 01 00000000:00000000 00:00000000 00000000     0        0 14 1 x\n";
  EXPECT_EQ(tcp_inodes(table, 0x7149), (Words{"12", "13"}));
  EXPECT_EQ(tcp_inodes(table, 0), Words{"11"});
  EXPECT_TRUE(tcp_inodes("", 5).empty());
}

// A listener on 127.0.0.1, a connection to it, and a child process that has inherited both.
class ProcessWithSockets {
 public:
  ProcessWithSockets() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_, generic, size), 0);
    EXPECT_EQ(::listen(listener_, 1), 0);
    EXPECT_EQ(::getsockname(listener_, generic, &size), 0);
    EXPECT_EQ(::connect(connection_, generic, size), 0);
    port_ = ntohs(address.sin_port);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
  }
  ~ProcessWithSockets() {
    end();
    ::close(listener_);
    ::close(connection_);
  }
  ProcessWithSockets(const ProcessWithSockets&) = delete;
  ProcessWithSockets& operator=(const ProcessWithSockets&) = delete;

  void end() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  int port() const { return port_; }
  SocketDescriptor listener() const { return descriptor(listener_); }
  SocketDescriptor connection() const { return descriptor(connection_); }

 private:
  static SocketDescriptor descriptor(int number) {
    struct stat status {};
    ::fstat(number, &status);
    return {.number = number, .inode = std::to_string(status.st_ino)};
  }

  int listener_ = ::socket(AF_INET, SOCK_STREAM, 0), connection_ = ::socket(AF_INET, SOCK_STREAM, 0);
  int port_ = 0;
  pid_t pid_ = 0;
};

TEST(TcpUseOfAProcess, IsTheSameByCopiesAndByTables) {
  const ProcessWithSockets process;
  for (const auto& use : {tcp_use, tcp_use_by_tables}) {
    const TcpUse listens = use(process.pid(), {process.listener()}, process.port());
    EXPECT_TRUE(listens.listens);
    EXPECT_FALSE(listens.uses_port);  // this socket has no connection
    const TcpUse connected = use(process.pid(), {process.connection()}, process.port());
    EXPECT_FALSE(connected.listens);
    EXPECT_TRUE(connected.uses_port);
    EXPECT_FALSE(use(process.pid(), {process.connection()}, process.port() ^ 1).uses_port);
    EXPECT_FALSE(use(process.pid(), {process.connection()}, 0).uses_port);
  }
}

TEST(TcpUseOfAProcess, IsEmptyForClosedDescriptorsAndEndedProcesses) {
  ProcessWithSockets process;
  const TcpUse closed = tcp_use(process.pid(), {{.number = 987, .inode = "1"}}, process.port());
  EXPECT_FALSE(closed.listens || closed.uses_port);
  const pid_t pid = process.pid();
  process.end();
  const TcpUse ended = tcp_use(pid, {process.listener()}, process.port());
  EXPECT_FALSE(ended.listens || ended.uses_port);
}

}  // namespace
}  // namespace ddprun::guardian
