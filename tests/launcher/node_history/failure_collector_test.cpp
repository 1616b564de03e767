// Tests which events of a job become entries of the history of nodes, and which lines the observer publishes.
#include "launcher/node_history/failure_collector.hpp"

#include <gtest/gtest.h>

#include "launcher/node_history/history_observer.hpp"

namespace ddprun {
namespace {

using rendezvous::NodeNotice;
using Kind = NodeNotice::Kind;

constexpr std::int64_t kNs = 1'000'000'000;

RunEvent notice(Kind kind, const std::string& failed_host = "", std::int64_t time_s = 50, const std::string& text = "") {
  return NodesChanged{.notice = {.kind = kind, .text = text, .failed_host = failed_host}, .time_ns = time_s * kNs};
}

RunEvent failed(Cause cause, const std::string& host, std::int64_t time_s = 60) {
  Failure first;
  first.cause = cause;
  first.host = host;
  return RoundFailed{.round = 0,
                     .first = first,
                     .consequences = {},
                     .decision = RoundFailed::Decision::kRestart,
                     .why = "",
                     .time_ns = time_s * kNs};
}

const RunEvent kEnd = RunEnded{.exit_code = 80, .why = "", .restarts_used = 0, .time_ns = 70 * kNs};

// Returns the recorded failures of a node as "host cause time". `several_nodes` is true if the job has several nodes.
std::vector<std::string> recorded(const std::vector<RunEvent>& events, bool several_nodes = true) {
  NodeFailureCollector collector({.several_nodes = several_nodes, .host = "own", .run = "/runs/a"});
  std::vector<std::string> texts;
  for (const RunEvent& event : events) {
    for (const NodeFailure& one : collector.on(event)) {
      EXPECT_EQ(one.run, "/runs/a");
      texts.push_back(one.host + " " + one.cause + " " + std::to_string(one.time_s));
    }
  }
  return texts;
}

TEST(NodeFailureCollector, RecordsEachFailureOnce) {
  using Texts = std::vector<std::string>;
  struct Row {
    std::string name;
    std::vector<RunEvent> events;
    Texts expected;
  };
  const RunEvent leads = notice(Kind::kLeading), follows = notice(Kind::kFollowing), next_round = notice(Kind::kReleased);
  const std::vector<Row> rows{
      {"a lost node, recorded with the next round", {leads, follows, notice(Kind::kLost, "b"), next_round}, {"b lost 50"}},
      {"not before the next round", {leads, notice(Kind::kLost, "b")}, {}},
      {"the job ends without another round", {leads, notice(Kind::kLost, "b"), kEnd}, {"b lost 50"}},
      {"a node that left", {leads, notice(Kind::kLost, ""), next_round}, {}},
      {"once", {leads, notice(Kind::kLost, "b"), next_round, next_round, kEnd}, {"b lost 50"}},
      {"two nodes", {leads, notice(Kind::kLost, "b"), notice(Kind::kLost, "c"), next_round}, {"b lost 50", "c lost 50"}},
      {"a member records nothing", {follows, notice(Kind::kLost, "b"), next_round, failed(Cause::kDevice, "b"), kEnd}, {}},
      {"the coordinator was cut off and steps down",
       {leads, notice(Kind::kLost, "b"), notice(Kind::kLost, "c"), notice(Kind::kSearching), kEnd},
       {}},
      {"the successor records the lost coordinator",
       {follows, notice(Kind::kSearching, "old"), leads, follows, next_round},
       {"old lost 50"}},
      {"another node became the coordinator", {follows, notice(Kind::kSearching, "old"), follows, next_round, kEnd}, {}},
      {"this member was cut off", {follows, notice(Kind::kSearching, "old"), kEnd}, {}},
      {"a failed GPU", {leads, failed(Cause::kDevice, "b")}, {"b device 60"}},
      {"a failure without a host is of this node", {leads, failed(Cause::kCorruptState, "")}, {"own corrupt_state 60"}},
      {"a fault of the program", {leads, failed(Cause::kException, "b"), failed(Cause::kOutOfMemory, "b")}, {}},
  };
  for (const Row& row : rows) EXPECT_EQ(recorded(row.events), row.expected) << row.name;
  EXPECT_EQ(recorded({failed(Cause::kDevice, "own")}, false), Texts{"own device 60"});
}

TEST(NodeHistoryObserver, ReportsEachFailingNodeOnce) {
  std::vector<std::string> lines;
  NodeHistory added;
  NodeHistoryObserver observer(
      {.several_nodes = true, .host = "own", .run = "/runs/a"},
      {{.host = "own", .failures = 4, .causes = "4 lost"}, {.host = "b", .failures = 3, .causes = "3 device"}},
      [&](const NodesChanged& event) {
        EXPECT_EQ(event.notice.kind, Kind::kFailing);
        lines.push_back(event.notice.text);
      },
      [&](NodeHistory failures) { added.insert(added.end(), failures.begin(), failures.end()); });
  observer.on(RunStarted{.time_ns = 0, .world_size = 4});
  for (const char* host : {"own", "a", "b", "b"}) observer.on(notice(Kind::kJoined, "", 50, host));
  EXPECT_EQ(lines, (std::vector<std::string>{"node own failed 4 times in the last 7 days (4 lost)",
                                             "node b failed 3 times in the last 7 days (3 device)"}));
  EXPECT_TRUE(added.empty());
  observer.on(notice(Kind::kLeading));
  observer.on(notice(Kind::kLost, "a"));
  observer.on(notice(Kind::kReleased));
  ASSERT_EQ(added.size(), 1u);
  EXPECT_EQ(added[0].host, "a");
}

}  // namespace
}  // namespace ddprun
