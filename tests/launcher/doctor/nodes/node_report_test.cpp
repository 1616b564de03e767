// Tests the messages between `ddprun doctor` on several nodes, and the output of the comparison.
#include "launcher/doctor/nodes/node_report.hpp"

#include <gtest/gtest.h>

#include "launcher/doctor/nodes/meeting_result.hpp"
#include "launcher/doctor/verdicts/node_facts.hpp"

namespace ddprun::doctor {
namespace {

template <class Message>
Message sent(const Message& message) {
  const auto received = decode(encode(message));
  EXPECT_TRUE(received && std::holds_alternative<Message>(*received));
  return std::get<Message>(*received);
}

TEST(NodeReport, MessagesAreUnchangedByEncoding) {
  const NodeReport report = sent(NodeReport{.host = "n1",
                                            .rank = 3,
                                            .facts = {{"gpus", "8"}, {"driver", "570"}},
                                            .checks = {ok("clock", "fine"), error("data", "is \"gone\"", "copy it")},
                                            .port = 65535});
  EXPECT_EQ(report.host, "n1");
  EXPECT_EQ(report.rank, 3);
  EXPECT_EQ(report.facts.at("driver"), "570");
  EXPECT_EQ(report.checks, (Checks{ok("clock", "fine"), error("data", "is \"gone\"", "copy it")}));
  EXPECT_EQ(report.port, 65535);
  EXPECT_FALSE(sent(NodeReport{.host = "n1"}).rank.has_value());
  EXPECT_EQ(sent(ClockReading{1'764'500'000'123'456'789}).time_ns, 1'764'500'000'123'456'789);
  EXPECT_EQ(sent(PeerList{{{.id = 7, .host = "n7", .address = "fd77::7", .port = 9}}}).peers[0].address, "fd77::7");
  const PeerResults results = sent(PeerResults{{{.id = 7, .addresses = {"a", "b"}, .connect_problem = "refused"}}});
  EXPECT_EQ(results.results[0].addresses, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(results.results[0].connect_problem, "refused");
  EXPECT_EQ(sent(GroupResult{2, 5, "n0"}).warnings, 5);
  EXPECT_EQ(sent(NodeRefusal{"late"}).why, "late");
  sent(ClockQuery{});
}

TEST(NodeReport, OtherTextsAreRefused) {
  for (const char* text : {"", "{", "[]", "7", "{}", R"({"type":"unknown"})", R"({"type":7})"})
    EXPECT_FALSE(decode(text)) << text;
}

TEST(NodeReport, WrongAndHugeValuesAreReplaced) {
  const auto report = std::get<NodeReport>(*decode(
      R"({"type":"report","host":7,"rank":"x","port":70000,"facts":[1,{"name":"a"}],"checks":"no lines","more":[[[[]]]]})"));
  EXPECT_EQ(report.host, "");
  EXPECT_FALSE(report.rank.has_value());
  EXPECT_EQ(report.port, 0);
  EXPECT_TRUE(report.checks.empty());
  NodeReport huge{.host = std::string(100'000, 'x')};
  for (int i = 0; i < 1000; ++i) huge.facts["fact" + std::to_string(i)] = "1";
  huge.checks = Checks(5000, ok("clock", "fine"));
  const NodeReport cut = sent(huge);
  EXPECT_LE(cut.host.size(), 1000u);
  EXPECT_LE(cut.facts.size(), 64u);
  EXPECT_LE(cut.checks.size(), 256u);
}

TEST(NodeReport, FactsTravelAsChecks) {
  Checks checks{ok("clock", "fine"), fact("gpus", "8")};
  EXPECT_EQ(take_facts(checks), (NodeFacts{{"gpus", "8"}}));
  EXPECT_EQ(checks, Checks{ok("clock", "fine")});
}

const Checks kOwn{ok("clock", "fine"), warning("cpus", "few", "use more")};

TEST(MeetingResult, TheFirstNodePrintsAllTables) {
  const Meeting meeting{.tables = {{"n0", "", kOwn}, {"n1", "10.0.0.1", {error("data", "gone", "copy it")}}},
                        .comparison = {ok("nodes", "all 2 nodes came: n0, n1")}};
  EXPECT_EQ(table_of(meeting, kOwn),
            "node n0 (this node)\n"
            "ok       clock              fine\n"
            "warning  cpus               few\n"
            "         do: use more\n"
            "0 errors, 1 warning\n"
            "\n"
            "node n1 (10.0.0.1)\n"
            "error    data               gone\n"
            "         do: copy it\n"
            "1 error, 0 warnings\n"
            "\n"
            "all nodes\n"
            "ok       nodes              all 2 nodes came: n0, n1\n"
            "0 errors, 0 warnings\n");
  EXPECT_EQ(json_lines_of(meeting, kOwn, "n0"),
            "{\"node\":\"n0\",\"check\":\"clock\",\"verdict\":\"ok\",\"found\":\"fine\",\"do\":\"\"}\n"
            "{\"node\":\"n0\",\"check\":\"cpus\",\"verdict\":\"warning\",\"found\":\"few\",\"do\":\"use more\"}\n"
            "{\"node\":\"n1\",\"check\":\"data\",\"verdict\":\"error\",\"found\":\"gone\",\"do\":\"copy it\"}\n"
            "{\"node\":\"*\",\"check\":\"nodes\",\"verdict\":\"ok\",\"found\":\"all 2 nodes came: n0, n1\",\"do\":\"\"}\n");
  EXPECT_EQ(exit_code_of(meeting, kOwn), 1);
  EXPECT_EQ(summary_of(meeting, kOwn, "n0"), "");
}

TEST(MeetingResult, AnotherNodePrintsItsFindingsAndTheExitCodeFollowsTheWorstNode) {
  const Meeting meeting{.result = GroupResult{.errors = 1, .warnings = 2, .host = "n0"}};
  EXPECT_EQ(table_of(meeting, kOwn), "warning  cpus               few\n         do: use more\n0 errors, 1 warning\n");
  EXPECT_EQ(table_of(meeting, {ok("clock", "fine")}), "");
  EXPECT_EQ(json_lines_of(meeting, kOwn, "n1"), "");
  EXPECT_EQ(
      summary_of(meeting, kOwn, "n1"),
      "n1: 0 errors, 1 warning on this node; on all nodes: 1 error, 2 warnings. The doctor on n0 prints the tables of all "
      "nodes");
  EXPECT_EQ(exit_code_of(meeting, kOwn), 1);
  EXPECT_EQ(exit_code_of(Meeting{.result = GroupResult{.warnings = 9}}, kOwn), 0);
}

TEST(MeetingResult, ANodeThatDidNotMeetTheOthersPrintsTheReason) {
  const Meeting meeting{.problems = {error("token", "differs", "copy it")}};
  EXPECT_NE(table_of(meeting, kOwn).find("error    token              differs\n"), std::string::npos);
  EXPECT_NE(table_of(meeting, kOwn).find("ok       clock"), std::string::npos);
  EXPECT_NE(json_lines_of(meeting, kOwn, "n1").find(R"({"node":"n1","check":"token","verdict":"error")"), std::string::npos);
  EXPECT_EQ(exit_code_of(meeting, kOwn), 1);
}

}  // namespace
}  // namespace ddprun::doctor
