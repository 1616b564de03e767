// Tests that messages arrive unchanged, even if they arrive in chunks of any size or after output of a shell. Other bytes must
// be refused.
#include "launcher/hosts/host_messages.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

using Start = MessageReader::Start;

std::string all_bytes() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes;
}

TEST(HostMessages, AnyContentArrivesInPieces) {
  const std::string stream =
      encode(MessageKind::kOutput, all_bytes()) + encode(MessageKind::kPing, "") + encode(MessageKind::kEnded, "x\n");
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, stream.size()}) {
    MessageReader reader(Start::kAtFirstByte);
    std::vector<HostMessage> messages;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.feed(std::string_view(stream).substr(at, piece));
      while (auto message = reader.next()) messages.push_back(std::move(*message));
    }
    ASSERT_EQ(messages.size(), 3u);
    EXPECT_EQ(messages[0].kind, MessageKind::kOutput);
    EXPECT_EQ(messages[0].content, all_bytes());
    EXPECT_EQ(messages[1].kind, MessageKind::kPing);
    EXPECT_EQ(messages[2].content, "x\n");
    EXPECT_FALSE(reader.broken());
  }
}

TEST(HostMessages, TextBeforeTheGreetingIsSkipped) {
  MessageReader reader(Start::kAfterGreeting);
  reader.feed("Welcome to host b\no5\n");
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.greeted());
  reader.feed(std::string(kHostGreeting) + encode(MessageKind::kAttached, ""));
  EXPECT_TRUE(reader.greeted());
  EXPECT_EQ(reader.next()->kind, MessageKind::kAttached);
}

TEST(HostMessages, OtherBytesAreRefused) {
  for (const char* text : {"z3\nabc", "o-1\n", "ox\n", "o99999999999\n", "o\n", "o1234567890123", "\n\n\n"}) {
    MessageReader reader(Start::kAtFirstByte);
    reader.feed(text);
    EXPECT_FALSE(reader.next()) << text;
    EXPECT_TRUE(reader.broken()) << text;
  }
  MessageReader reader(Start::kAfterGreeting);
  reader.feed(std::string(100'000, 'x'));
  EXPECT_TRUE(reader.broken());
}

TEST(HostMessages, RequestsKeepTheirFields) {
  OpenRequest open;
  open.version = "0.1.0";
  open.mode = OpenRequest::Mode::kAttach;
  open.id = "0af3-1-2";
  open.folder = "/home/ann/a b\n'$x";
  open.interface = "eth1";
  open.lost_timeout_ms = 120'000;
  open.is_first = true;
  const auto opened = parse_open_request(to_content(open));
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->mode, OpenRequest::Mode::kAttach);
  EXPECT_EQ(opened->folder, open.folder);
  EXPECT_EQ(opened->lost_timeout_ms, 120'000);
  EXPECT_TRUE(opened->is_first);

  RunRequest run;
  run.token = "secret";
  run.variables = {"A=1", "B=x y\n$z"};
  run.words = {"/usr/bin/ddprun", "train.py", "", "it's \"$HOME\"\n", "\xff"};
  const auto parsed = parse_run_request(to_content(run));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->token, run.token);
  EXPECT_EQ(parsed->variables, run.variables);
  EXPECT_EQ(parsed->words, run.words);
}

// Ids that are not safe in a file name are refused, because the id becomes a part of a file name.
TEST(HostMessages, InvalidRequestsAreRefused) {
  OpenRequest open;
  open.id = "../../x";
  EXPECT_FALSE(parse_open_request(to_content(open)));
  EXPECT_FALSE(parse_open_request(""));
  EXPECT_FALSE(parse_run_request(""));
  EXPECT_FALSE(parse_run_request(join_fields({"token", "3", "A=1"})));
  EXPECT_FALSE(parse_run_request(join_fields({"token", "-1", "A=1"})));
}

}  // namespace
}  // namespace ddprun
