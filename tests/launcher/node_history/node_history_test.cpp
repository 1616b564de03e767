// Tests which failures of nodes are counted, which nodes are reported as failing, and the limits of the history.
#include "launcher/node_history/node_history.hpp"

#include <gtest/gtest.h>

#include <map>

namespace ddprun {
namespace {

constexpr std::int64_t kNow = 1'800'000'000;
constexpr std::int64_t kDay = 86'400;

NodeFailure failure(const std::string& host, std::int64_t age_s, const std::string& cause = kLostNode) {
  return {.time_s = kNow - age_s, .host = host, .cause = cause, .run = "/runs/a"};
}

TEST(NodeHistory, AHostIsFailingAfterThreeFailuresInSevenDays) {
  struct Row {
    std::string name;
    NodeHistory history;
    std::string expected;  // the description of each failing node, one line each
  };
  const std::vector<Row> rows{
      {"none", {}, ""},
      {"two failures", {failure("a", 10), failure("a", 20)}, ""},
      {"three failures",
       {failure("a", 10), failure("a", 20), failure("a", 30)},
       "a failed 3 times in the last 7 days (3 lost)\n"},
      {"of three hosts", {failure("a", 10), failure("b", 20), failure("c", 30)}, ""},
      {"one is older", {failure("a", 10), failure("a", 20), failure("a", 7 * kDay)}, ""},
      {"the oldest that counts",
       {failure("a", 10), failure("a", 20), failure("a", 7 * kDay - 1)},
       "a failed 3 times in the last 7 days (3 lost)\n"},
      {"a clock that is an hour ahead",
       {failure("a", 10), failure("a", 20), failure("a", -3600)},
       "a failed 3 times in the last 7 days (3 lost)\n"},
      {"a wrong clock", {failure("a", 10), failure("a", 20), failure("a", -2 * kDay)}, ""},
      {"several causes, the most frequent first",
       {failure("a", 10, "device"), failure("a", 20), failure("a", 30), failure("a", 40, "corrupt_state")},
       "a failed 4 times in the last 7 days (2 lost, 1 corrupt_state, 1 device)\n"},
      {"the worst host first",
       {failure("a", 1), failure("a", 2), failure("a", 3), failure("b", 1), failure("b", 2), failure("b", 3), failure("b", 4)},
       "b failed 4 times in the last 7 days (4 lost)\na failed 3 times in the last 7 days (3 lost)\n"},
  };
  for (const Row& row : rows) {
    std::string text;
    for (const FailingNode& node : failing_nodes(row.history, kNow)) text += describe(node) + "\n";
    EXPECT_EQ(text, row.expected) << row.name;
  }
}

TEST(NodeHistory, OnlyFailuresOfTheNodeItselfCount) {
  std::string counted;
  for (std::size_t cause = 0; cause < kCauses; ++cause) {
    if (is_node_failure(static_cast<Cause>(cause))) counted += std::string(name_of(static_cast<Cause>(cause))) + " ";
  }
  EXPECT_EQ(counted, "uninterruptible corrupt_state device ");
}

TEST(NodeHistory, MergesSortsAndExpires) {
  const NodeHistory before{failure("a", 10), failure("old", 8 * kDay)};
  const NodeHistory merged = with_failures(before, {failure("b", 30), failure("a", 10), failure("", 5)}, kNow);
  EXPECT_EQ(merged, (NodeHistory{failure("b", 30), failure("a", 10)}));
}

TEST(NodeHistory, IsBounded) {
  NodeHistory many;
  for (int i = 0; i < 1000; ++i) many.push_back(failure("broken", i));
  many.push_back(failure("other", 5 * kDay));
  const NodeHistory one = with_failures(many, {}, kNow);
  EXPECT_EQ(one.size(), kMaxFailuresPerHost + 1) << "a broken machine does not evict the others";
  EXPECT_EQ(one.back(), failure("broken", 0));
  for (int host = 0; host < 1000; ++host) many.push_back(failure("h" + std::to_string(host), host));
  EXPECT_EQ(with_failures(many, {}, kNow).size(), kMaxFailures);
  const NodeFailure longest{.time_s = kNow, .host = std::string(5000, 'h'), .cause = "lost", .run = std::string(5000, 'r')};
  const NodeHistory cut = with_failures({}, {longest}, kNow);
  EXPECT_EQ(cut.at(0).host.size(), kMaxFailureText);
  EXPECT_EQ(cut.at(0).run.size(), kMaxFailureText);
}

}  // namespace
}  // namespace ddprun
