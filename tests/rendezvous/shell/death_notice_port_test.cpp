// Tests the port for death notices. The port accepts a notice only if it has the correct key and is for the expected round,
// and sends the notice back as a confirmation.
#include "rendezvous/shell/death_notice_port.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace ddprun::rendezvous {
namespace {

using boost::asio::ip::udp;

TEST(DeathNoticePort, AcceptsOnlyNoticesWithTheKey) {
  boost::asio::io_context io;
  std::optional<RoundId> received_round;
  const DeathNoticePort port(io, {}, [&](const RoundId& round) { received_round = round; });
  ASSERT_NE(port.port(), 0);
  udp::socket sender(io, udp::v4());
  const udp::endpoint to(boost::asio::ip::make_address("127.0.0.1"), port.port());
  const auto send = [&](const std::string& text) { sender.send_to(boost::asio::buffer(text), to); };

  send("");
  send("ddprun farewell");
  DeathNoticeKey wrong = port.key();
  wrong[31] ^= 1U;
  send(death_notice_text(wrong, {3, 4}));
  std::string other_round = death_notice_text(port.key(), {3, 4});
  other_round[15 + 15] = 5;  // changes the round in the notice, which makes the digest wrong
  send(other_round);
  const std::string right = death_notice_text(port.key(), {3, 7});
  send(right);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!received_round && std::chrono::steady_clock::now() < end) io.run_one_for(std::chrono::seconds(1));
  EXPECT_EQ(received_round, (RoundId{3, 7}));
  std::string back(128, ' ');
  back.resize(sender.receive(boost::asio::buffer(back)));
  EXPECT_EQ(back, right);
}

TEST(DeathNoticePort, UsesAPortOfTheRange) {
  boost::asio::io_context io;
  const auto ignore = [](const RoundId&) {};
  const DeathNoticePort any(io, {}, ignore);
  ASSERT_NE(any.port(), 0);
  const DeathNoticePort none(io, {any.port(), any.port()}, ignore);  // the only port of the range is in use
  EXPECT_EQ(none.port(), 0);
  const auto low = static_cast<std::uint16_t>(any.port() < 65000 ? any.port() : any.port() - 100);
  const ListenPorts range{low, static_cast<std::uint16_t>(low + 99)};
  const DeathNoticePort first(io, range, ignore), second(io, range, ignore);
  for (const DeathNoticePort* one : {&first, &second}) {
    EXPECT_GE(one->port(), range.low);
    EXPECT_LE(one->port(), range.high);
    EXPECT_NE(one->port(), any.port());
  }
  EXPECT_NE(first.port(), second.port());
}

}  // namespace
}  // namespace ddprun::rendezvous
