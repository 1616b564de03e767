// The port that receives farewells: only with the key, only for the named round, and with an echo to the sender.
#include "rendezvous/shell/farewell_port.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace ddprun::rendezvous {
namespace {

using boost::asio::ip::udp;

TEST(FarewellPort, HearsWhoKnowsTheKey) {
  boost::asio::io_context io;
  std::optional<RoundId> heard;
  const FarewellPort port(io, [&](const RoundId& round) { heard = round; });
  ASSERT_NE(port.port(), 0);
  udp::socket sender(io, udp::v4());
  const udp::endpoint to(boost::asio::ip::make_address("127.0.0.1"), port.port());
  const auto say = [&](const std::string& text) { sender.send_to(boost::asio::buffer(text), to); };

  say("");
  say("ddprun farewell");
  FarewellKey wrong = port.key();
  wrong[31] ^= 1U;
  say(farewell_text(wrong, {3, 4}));
  std::string other_round = farewell_text(port.key(), {3, 4});
  other_round[15 + 15] = 5;  // a farewell of one round is invalid for another
  say(other_round);
  const std::string right = farewell_text(port.key(), {3, 7});
  say(right);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!heard && std::chrono::steady_clock::now() < end) io.run_one_for(std::chrono::seconds(1));
  EXPECT_EQ(heard, (RoundId{3, 7}));
  std::string back(128, ' ');
  back.resize(sender.receive(boost::asio::buffer(back)));
  EXPECT_EQ(back, right);
}

}  // namespace
}  // namespace ddprun::rendezvous
