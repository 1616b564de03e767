// Tests the choice of a node by its host name or rank, for `ddprun stop --node`.
#include "launcher/query/local/node_choice.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

using nlohmann::json;

ClusterAnswers three_nodes() {
  return {.answers = {json{{"host", "gpu1.example.org"}, {"node_rank", 0}, {"pid", 10}, {"min_nodes", 2}},
                      json{{"host", "gpu2"}, {"node_rank", 1}, {"pid", 20}, {"min_nodes", 2}},
                      json{{"host", "2"}, {"node_rank", -1}, {"pid", 30}, {"min_nodes", 2}}},
          .names = {"a", "b", "c"},
          .of = 3,
          .agent_answered = true};
}

std::string choice_or_error(const ClusterAnswers& nodes, const std::string& word) {
  try {
    return "chose " + choose_node(nodes, word).name;
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(NodeChoice, SelectsByHostNameOrRank) {
  struct Row {
    std::string word, expected;
  };
  const std::string all = "node 0 on gpu1.example.org, node 1 on gpu2, a spare on 2";
  for (const Row& row : std::vector<Row>{
           {"gpu1.example.org", "chose a"},
           {"gpu1", "chose a"},
           {"gpu2", "chose b"},
           {"gpu2.example.org", "chose b"},
           {"0", "chose a"},
           {"1", "chose b"},
           {"2", "chose c"},  // a host name takes precedence over a rank
           {"3", "the job has no node '3'; it has " + all},
           {"gpu", "the job has no node 'gpu'; it has " + all},
           {"gpu1.example.com", "the job has no node 'gpu1.example.com'; it has " + all},
           {"-1", "the job has no node '-1'; it has " + all},
       }) {
    EXPECT_EQ(choice_or_error(three_nodes(), row.word), row.expected) << row.word;
  }
  const ChosenNode node = choose_node(three_nodes(), "1");
  EXPECT_EQ(node.host, "gpu2");
  EXPECT_EQ(node.agent, 20);
}

TEST(NodeChoice, ASharedHostNameIsAmbiguous) {
  ClusterAnswers nodes = three_nodes();
  nodes.answers[1]["host"] = "gpu1";
  EXPECT_EQ(choice_or_error(nodes, "gpu1"),
            "several nodes of the job have the host name 'gpu1': name one by its rank; the job has node 0 on gpu1.example.org, "
            "node 1 on gpu1, a spare on 2");
  EXPECT_EQ(choice_or_error(nodes, "1"), "chose b");
}

TEST(NodeChoice, SilentNodesAreMentioned) {
  ClusterAnswers nodes = three_nodes();
  nodes.of = 5;
  EXPECT_NE(choice_or_error(nodes, "gpu9").find("and 2 that did not answer"), std::string::npos);
}

TEST(NodeChoice, TheJobMustKeepItsMinimumOfNodes) {
  ClusterAnswers nodes = three_nodes();
  EXPECT_NO_THROW(refuse_too_few_nodes(nodes, {.host = "gpu2"}));
  nodes.of = 2;
  try {
    refuse_too_few_nodes(nodes, {.host = "gpu2"});
    ADD_FAILURE() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()),
              "the job needs at least 2 nodes (--nnodes), and 2 are connected: it would stop without gpu2. Start another node "
              "first, or stop the whole job with ddprun stop");
  }
}

}  // namespace
}  // namespace ddprun
