// Tests the guardian's end of its socket to the agent: descriptors in requests, and a full or closed socket. The agent's end is
// a plain socket of the test.
#include "launcher/guardian/agent_socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace ddprun::guardian {
namespace {

class AgentSocketTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0); }
  void TearDown() override {
    for (const int fd : ends_) ::close(fd);
  }
  void send(const Request& request, int descriptor = -1, std::string text = {}) const {
    Request copy = request;
    iovec parts[] = {{&copy, sizeof copy}, {text.data(), text.size()}};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    if (descriptor >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    ASSERT_EQ(::sendmsg(ends_[0], &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof copy + text.size()));
  }

  int ends_[2] = {-1, -1};
};

TEST_F(AgentSocketTest, RequestsArriveInOrder) {
  AgentSocket socket(ends_[1]);
  send({.kind = Request::Kind::kSignal, .worker = 3, .signal = 15});
  send({.kind = Request::Kind::kCleanShutdown});
  EXPECT_EQ(socket.receive()->request.worker, 3);
  EXPECT_EQ(socket.receive()->request.kind, Request::Kind::kCleanShutdown);
  EXPECT_FALSE(socket.receive());
  EXPECT_FALSE(socket.agent_is_gone());
}

TEST_F(AgentSocketTest, RequestClosesItsDescriptors) {
  AgentSocket socket(ends_[1]);
  send({.kind = Request::Kind::kSpawn}, STDERR_FILENO);
  int descriptor = -1;
  {
    const auto received = socket.receive();
    ASSERT_TRUE(received);
    EXPECT_EQ(received->descriptor_count, 1);
    descriptor = received->descriptors[0].get();
    EXPECT_EQ(::fcntl(descriptor, F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(received->descriptors[1].get(), -1);
  }
  EXPECT_EQ(::fcntl(descriptor, F_GETFD), -1);
}

TEST_F(AgentSocketTest, TextAfterARequestIsReceived) {
  AgentSocket socket(ends_[1]);
  const std::string most(kMaxPacketBytes, 'x');
  send({.kind = Request::Kind::kSpawn, .worker = 1}, STDERR_FILENO, most);
  send({.kind = Request::Kind::kSpawn, .worker = 2});
  const auto first = socket.receive();
  EXPECT_EQ(first->request.worker, 1);
  EXPECT_EQ(std::string(first->text.begin(), first->text.end()), most);
  EXPECT_EQ(first->descriptor_count, 1);
  const auto second = socket.receive();
  EXPECT_EQ(second->request.worker, 2);
  EXPECT_TRUE(second->text.empty());
}

TEST_F(AgentSocketTest, AgentIsGoneAfterItsLastRequest) {
  AgentSocket socket(ends_[1]);
  send({.kind = Request::Kind::kCleanShutdown});
  ::shutdown(ends_[0], SHUT_RDWR);
  EXPECT_TRUE(socket.receive());
  EXPECT_FALSE(socket.agent_is_gone());
  EXPECT_FALSE(socket.receive());
  EXPECT_TRUE(socket.agent_is_gone());
}

TEST_F(AgentSocketTest, AFullSocketQueuesNotices) {
  AgentSocket socket(ends_[1]);
  int sent = 0;
  for (; !socket.has_more_to_send(); ++sent) {
    ASSERT_LT(sent, 1'000'000);
    socket.notify({.worker = sent});
    socket.flush();
  }
  for (int worker = 0; worker < sent; ++worker) {
    Notice notice;
    ASSERT_EQ(::recv(ends_[0], &notice, sizeof notice, MSG_DONTWAIT), static_cast<ssize_t>(sizeof notice));
    ASSERT_EQ(notice.worker, worker);
    socket.flush();
  }
  EXPECT_FALSE(socket.has_more_to_send());
}

}  // namespace
}  // namespace ddprun::guardian
