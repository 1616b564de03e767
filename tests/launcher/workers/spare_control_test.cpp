// Tests the agent's end of the control socket of a spare interpreter (a preloaded Python process). The test acts as the spare
// interpreter.
#include "launcher/workers/spare_control.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ddprun {
namespace {

struct Order {
  std::string text;
  std::size_t descriptors = 0;
};

// The spare's end of the socket, which behaves like sitecustomize.py.
class Spare {
 public:
  explicit Spare(const SpareControl& control) : end_(::dup(control.spares_end())) {}

  Order receive() {
    std::array<char, 16> text{};
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) std::array<char, 256> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(end_.get(), &message, MSG_DONTWAIT);
    Order order{.text = std::string(text.data(), n < 0 ? 0 : static_cast<std::size_t>(n))};
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      order.descriptors += (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t at = 0; at < order.descriptors; ++at) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + at * sizeof fd, sizeof fd);
        ::close(fd);
      }
    }
    return order;
  }
  void send(const std::string& message) {
    EXPECT_EQ(::send(end_.get(), message.data(), message.size(), 0), std::ssize(message));
  }
  void end() { end_ = Descriptor(); }

 private:
  Descriptor end_;
};

class SpareControlTest : public testing::Test {
 protected:
  SpareControlTest() {
    control_->begin();
    EXPECT_EQ(::pipe(pipe_.data()), 0);
  }
  ~SpareControlTest() override {
    control_->close();
    for (const int fd : pipe_) ::close(fd);
  }
  bool hand_over(SpareControl::ScanRole role, int scan_result) {
    return control_->hand_over({.arguments = {"python"}, .environment = {}},
                               {.standard_output = pipe_[1], .standard_error = pipe_[1], .channel = pipe_[0]}, role,
                               scan_result);
  }

  boost::asio::io_context io_;
  std::vector<spares::Message> messages_;
  std::shared_ptr<SpareControl> control_ =
      std::make_shared<SpareControl>(io_, [this](const spares::Message& message) { messages_.push_back(message); });
  Spare spare_{*control_};
  std::array<int, 2> pipe_{-1, -1};
};

TEST_F(SpareControlTest, AnOrderHasScanRoleAndResultFile) {
  ASSERT_TRUE(hand_over(SpareControl::ScanRole::kScans, pipe_[0]));
  const Order first = spare_.receive();
  EXPECT_EQ(first.text, "look");
  EXPECT_EQ(first.descriptors, 5u);
  ASSERT_TRUE(hand_over(SpareControl::ScanRole::kWaitsForScan, pipe_[0]));
  EXPECT_EQ(spare_.receive().text, "wait");
  control_->announce_scan();
  EXPECT_EQ(spare_.receive().text, "seen");
}

TEST_F(SpareControlTest, WithoutAResultFileOneDescriptorLessIsSent) {
  ASSERT_TRUE(hand_over(SpareControl::ScanRole::kScans, -1));
  const Order order = spare_.receive();
  EXPECT_EQ(order.text, "look");
  EXPECT_EQ(order.descriptors, 4u);
}

TEST_F(SpareControlTest, AllMessagesOfAnEndedSpareArrive) {
  control_->announce_scan();
  spare_.send("heard");
  spare_.send("runs\nsomething has changed");
  spare_.end();  // the spare has not read "seen", so the kernel resets the socket
  io_.run();
  ASSERT_EQ(messages_.size(), 2u);
  ASSERT_TRUE(std::holds_alternative<spares::Runs>(messages_[1]));
  EXPECT_EQ(std::get<spares::Runs>(messages_[1]).cold_start_reason, "something has changed");
  EXPECT_FALSE(control_->is_open());  // the socket is closed, so the agent waits for no further messages
}

}  // namespace
}  // namespace ddprun
