// The agent's end of a spare's control socket; the test plays the spare.
#include "launcher/spares/spare_control.hpp"

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

// The other end, as sitecustomize.py uses it.
class Spare {
 public:
  explicit Spare(const SpareControl& control) : end_(::dup(control.spares_end())) {}

  Order hear() {
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
  void say(const std::string& word) { EXPECT_EQ(::send(end_.get(), word.data(), word.size(), 0), std::ssize(word)); }
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
  bool hand_over(SpareControl::Look look, int board) {
    return control_->hand_over({.arguments = {"python"}, .environment = {}},
                               {.standard_output = pipe_[1], .standard_error = pipe_[1], .channel = pipe_[0]}, look, board);
  }

  boost::asio::io_context io_;
  std::vector<spares::Word> words_;
  std::shared_ptr<SpareControl> control_ =
      std::make_shared<SpareControl>(io_, [this](const spares::Word& word) { words_.push_back(word); });
  Spare spare_{*control_};
  std::array<int, 2> pipe_{-1, -1};
};

TEST_F(SpareControlTest, AnOrderSaysWhoLooksAndHasTheBoard) {
  ASSERT_TRUE(hand_over(SpareControl::Look::kForAll, pipe_[0]));
  const Order first = spare_.hear();
  EXPECT_EQ(first.text, "look");
  EXPECT_EQ(first.descriptors, 5u);
  ASSERT_TRUE(hand_over(SpareControl::Look::kWaits, pipe_[0]));
  EXPECT_EQ(spare_.hear().text, "wait");
  control_->tell_seen();
  EXPECT_EQ(spare_.hear().text, "seen");
}

TEST_F(SpareControlTest, WithoutABoardThereIsOneDescriptorLess) {
  ASSERT_TRUE(hand_over(SpareControl::Look::kForAll, -1));
  const Order order = spare_.hear();
  EXPECT_EQ(order.text, "look");
  EXPECT_EQ(order.descriptors, 4u);
}

TEST_F(SpareControlTest, WordsOfASpareThatLeavesOneUnreadAllArrive) {
  control_->tell_seen();
  spare_.say("heard");
  spare_.say("runs\nsomething has changed");
  spare_.end();  // the kernel resets the socket, because "seen" was not read
  io_.run();
  ASSERT_EQ(words_.size(), 2u);
  ASSERT_TRUE(std::holds_alternative<spares::Runs>(words_[1]));
  EXPECT_EQ(std::get<spares::Runs>(words_[1]).plainly_for, "something has changed");
  EXPECT_FALSE(control_->is_open());  // and the agent does not wait for more
}

}  // namespace
}  // namespace ddprun
