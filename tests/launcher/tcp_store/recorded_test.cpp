// Replays recorded bytes between a client and a TCPStore of torch 2.11. Our store must send the same answers.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/launcher/tcp_store/store_client.hpp"

namespace ddprun::script_store {
namespace {

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

// Pairs of bytes that the client sent and received, in hexadecimal. The client connects (magic number and ping) and counts the
// workers. Then it sends these queries: set and get of key a, add, compare_set of a and of b, check, delete, append,
// multi_set, wait for the keys of multi_set, multi_get, and number of keys. The last query is a wait that it cancels after a
// timeout.
const std::vector<std::pair<std::string, std::string>> kTorch211{
    {"00cef7853c0d950d0000", "950d0000"},
    {"040500000000000000696e69742f0100000000000000", "0100000000000000"},
    {"0102000000000000002f6101000000000000003106010000000000000002000000000000002f61", "00"},
    {"0302000000000000002f61", "010000000000000031"},
    {"0402000000000000002f6e0500000000000000", "0500000000000000"},
    {"0202000000000000002f61010000000000000031010000000000000032", "010000000000000032"},
    {"0202000000000000002f62010000000000000078010000000000000079", "010000000000000078"},
    {"05020000000000000002000000000000002f6103000000000000002f7a7a", "01"},
    {"0802000000000000002f6e", "0100000000000000"},
    {"0902000000000000002f610100000000000000330b020000000000000003000000000000002f6d310300000000000000"
     "6f6e6503000000000000002f6d32030000000000000074776f06020000000000000002000000000000002f6103000000"
     "000000002f6d31",
     "00"},
    {"0a020000000000000002000000000000002f6103000000000000002f6d31", "0200000000000000323303000000000000006f6e65"},
    {"07", "0400000000000000"},
    {"06010000000000000006000000000000002f6e657665720c", "01"}};

TEST(RecordedStore, AnswersLikeTorch) {
  ScriptStore store;
  store.connected(1);
  for (const auto& [sent, received] : kTorch211) {
    std::string answer;
    for (const Action& action : store.received(1, bytes_of(sent))) {
      ASSERT_TRUE(std::holds_alternative<Send>(action)) << std::get<Disconnect>(action).why;
      answer += std::get<Send>(action).bytes;
    }
    EXPECT_EQ(answer, bytes_of(received)) << sent;
  }
}

}  // namespace
}  // namespace ddprun::script_store
