// Tests the comparison of the nodes of a job: each planted difference gives exactly one finding, and equal nodes give none.
#include "launcher/doctor/nodes/compare_nodes.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/launcher/doctor/verdicts/planted.hpp"

namespace ddprun::doctor {
namespace {

using Nodes = std::vector<ComparedNode>;
using test::kError;
using test::kWarning;

constexpr int kCount = 4;

// Four equal nodes n0 to n3, which have tested each other.
Nodes equal_nodes() {
  Nodes nodes;
  for (int i = 0; i < kCount; ++i) {
    ComparedNode node{.host = "n" + std::to_string(i),
                      .rank = i,
                      .address = "10.0.0." + std::to_string(i),
                      .facts = {{"protocol", "13"},
                                {"ddprun", "0.1.0 (aaa)"},
                                {"libtorch", "2.11.0"},
                                {"python", "3.11.2"},
                                {"torch", "2.11.0"},
                                {"job", "mnist"},
                                {"config", "0123"},
                                {"nnodes", "4:4"},
                                {"driver", "570.1"},
                                {"gpu-model", "Model T"},
                                {"gpus", "8"},
                                {"mtu", "1500"},
                                {"open-files", "1048576"},
                                {"free-memory", "64000000000"}}};
    if (i > 0) node.clock = NodeClock{.offset_s = 0.01 * i, .error_s = 0.001};
    for (int peer = 0; peer < kCount; ++peer) {
      if (peer != i) node.results.push_back({.id = peer, .addresses = {"10.0.0." + std::to_string(peer)}});
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

const Attendance kAll{.min_nodes = kCount, .max_nodes = kCount, .waited_s = 0.2};

Checks compared(const std::function<void(Nodes&)>& change, const Attendance& attendance = kAll) {
  Nodes nodes = equal_nodes();
  change(nodes);
  label_nodes(nodes);
  return compare_nodes(nodes, attendance);
}

Checks with_fact(const char* name, const char* value) {
  return compared([&](Nodes& nodes) { nodes[2].facts[name] = value; });
}

TEST(CompareNodes, EachPlantedDifferenceIsFound) {
  test::expect_found({
      {"another protocol and version",
       compared([](Nodes& n) { n[3].facts["protocol"] = "12", n[3].facts["ddprun"] = "0.0.9 (bbb)"; }), kError, "same-protocol",
       "13 on n0, n1, n2; 12 on n3", "install the same ddprun"},
      {"another commit", with_fact("ddprun", "0.1.0 (bbb)"), kWarning, "same-ddprun",
       "0.1.0 (aaa) on n0, n1, n3; 0.1.0 (bbb) on n2", "install the same ddprun"},
      {"another LibTorch", with_fact("libtorch", "2.9.0"), kError, "same-libtorch", "2.9.0 on n2", "ddptrain"},
      {"another Python", with_fact("python", "3.12.1"), kWarning, "same-python", "3.12.1 on n2", "container image"},
      {"another torch", with_fact("torch", "2.9.0"), kError, "same-torch", "2.9.0 on n2", "install the same torch"},
      {"another job", with_fact("job", "cifar"), kError, "same-job", "cifar on n2", "--rdzv-id"},
      {"another config", with_fact("config", "4567"), kError, "same-config", "4567 on n2", "copy the same train.json"},
      {"another --nnodes", with_fact("nnodes", "2:4"), kError, "same-nnodes", "2:4 on n2", "--nnodes"},
      {"another driver", with_fact("driver", "535.2"), kWarning, "same-driver", "535.2 on n2", "driver"},
      {"another GPU", with_fact("gpu-model", "Model S"), kWarning, "same-gpu-model", "Model S on n2", "same GPUs"},
      {"a missing GPU", with_fact("gpus", "7"), kWarning, "same-gpus", "7 on n2", "nvidia-smi"},
      {"another MTU", with_fact("mtu", "9000"), kWarning, "same-mtu", "9000 on n2", "ip link"},
      {"few open files", with_fact("open-files", "1024"), kWarning, "open-file-limits", "1024 on n2, up to 1048576", "ulimit"},
      {"little free memory", with_fact("free-memory", "20000000000"), kWarning, "free-memory", "n2 has less than half",
       "end other programs"},
      {"a clock ahead", compared([](Nodes& n) { n[1].clock = NodeClock{.offset_s = 90.5, .error_s = 0.1}; }), kWarning,
       "clocks", "n1 by +90.50 s", "chrony"},
      {"a clock behind", compared([](Nodes& n) { n[1].clock = NodeClock{.offset_s = -3.25, .error_s = 0.1}; }), kWarning,
       "clocks", "n1 by -3.25 s", "chrony"},
      {"a name that does not resolve",
       compared([](Nodes& n) { n[0].results[1] = {.id = 2, .name_problem = "Name or service not known"}; }), kWarning, "names",
       "do not resolve: n2 (on n0)", "/etc/hosts"},
      {"a loopback name", compared([](Nodes& n) { n[0].results[1].addresses = {"127.0.1.1"}; }), kWarning, "names",
       "only a loopback address: n2 (on n0)", "/etc/hosts"},
      {"a closed port", compared([](Nodes& n) {
         for (const int from : {0, 1}) n[static_cast<std::size_t>(from)].results[1].connect_problem = "10.0.0.2:4: refused";
       }),
       kError, "connections", "to n2 from n0, n1: 10.0.0.2:4: refused", "firewall"},
      {"the same rank twice", compared([](Nodes& n) { n[3].rank = 1; }), kError, "node-ranks", "1 on n1, n3", "--node-rank"},
      {"a lost node", compared([](Nodes& n) { n[3].is_complete = false; }), kError, "lost-nodes", "n3", "read the output"},
  });
}

TEST(CompareNodes, MissingNodesAreNamed) {
  const auto without_two = [](Nodes& nodes) { nodes.erase(nodes.begin() + 2); };
  const Attendance late{.min_nodes = 4, .max_nodes = 4, .waited_s = 60};
  const Attendance elastic{.min_nodes = 2, .max_nodes = 4, .waited_s = 60};
  Attendance refused = late;
  refused.refused = {"10.0.0.9: refused: its token is not the token of this job"};
  const auto unknown = [](Nodes& nodes) {
    nodes.pop_back();
    for (ComparedNode& node : nodes) node.rank.reset();
  };
  test::expect_found({
      {"too few nodes", compared(without_two, late), kError, "nodes",
       "3 of 4 nodes came within 60 s: n0, n1, n3; missing node ranks: 2", "start ddprun doctor on all nodes"},
      {"enough nodes", compared(without_two, elastic), kWarning, "nodes", "3 of 4 nodes came", "--nnodes"},
      {"unknown ranks", compared(unknown, late), kError, "nodes", "within 60 s: n0, n1, n2", "--nnodes"},
      {"another token", compared(without_two, refused), kError, "nodes", "10.0.0.9: refused: its token", "join_timeout"},
  });
}

TEST(CompareNodes, EqualNodesHaveNoFindings) {
  test::expect_healthy("equal nodes", compared([](Nodes&) {}));
  test::expect_healthy("facts that no node has", compared([](Nodes& nodes) {
                         for (ComparedNode& node : nodes) node.facts.clear(), node.clock.reset(), node.results.clear();
                       }));
  test::expect_healthy("a fact that one node lacks", compared([](Nodes& nodes) { nodes[1].facts.erase("torch"); }));
  test::expect_healthy("names that no node resolves", compared([](Nodes& nodes) {
                         for (ComparedNode& node : nodes) {
                           for (PeerResult& one : node.results) one = {.id = one.id, .name_problem = "not known"};
                         }
                       }));
  test::expect_healthy("two agents on one machine", compared([](Nodes& nodes) {
                         for (ComparedNode& node : nodes) {
                           node.host = "vm";
                           for (PeerResult& one : node.results) one.addresses = {"127.0.1.1"};
                         }
                       }));
  test::expect_healthy("a slow query of a clock",
                       compared([](Nodes& nodes) { nodes[1].clock = NodeClock{.offset_s = 2, .error_s = 1.5}; }));
  test::expect_healthy("results about unknown peers", compared([](Nodes& nodes) {
                         nodes[0].results.push_back({.id = 99, .connect_problem = "refused"});
                         nodes[0].results.push_back({.id = -1, .name_problem = "not known"});
                       }));
}

// Measured values differ a little on healthy nodes.
TEST(CompareNodes, FiftyHealthyJobsHaveNoFindings) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    test::expect_healthy("seed " + std::to_string(seed), compared([&](Nodes& nodes) {
                           for (ComparedNode& node : nodes) {
                             node.facts["free-memory"] = std::to_string(60'000'000'000 + random() % 8'000'000'000);
                             node.facts["open-files"] = random() % 2 == 0 ? "1048576" : "524288";
                             node.clock = NodeClock{.offset_s = 0.001 * static_cast<double>(random() % 900),
                                                    .error_s = 0.001 * static_cast<double>(random() % 9)};
                           }
                         }));
  }
}

TEST(CompareNodes, EqualHostNamesGetNumbers) {
  Nodes nodes{{.host = "vm"}, {.host = "n1"}, {.host = "vm"}};
  label_nodes(nodes);
  EXPECT_EQ(nodes[0].label, "vm#0");
  EXPECT_EQ(nodes[1].label, "n1");
  EXPECT_EQ(nodes[2].label, "vm#1");
}

TEST(CompareNodes, AThousandNodesGiveAShortText) {
  Nodes nodes;
  for (int i = 0; i < 1000; ++i)
    nodes.push_back({.host = "n" + std::to_string(i), .facts = {{"gpus", std::to_string(i % 20)}}});
  label_nodes(nodes);
  const Checks checks = compare_nodes(nodes, {.min_nodes = 1000, .max_nodes = 1000});
  for (const Check& check : checks) EXPECT_LT(check.found.size(), 700u);
  EXPECT_NE(checks[0].found.find("n7 and 992 others"), std::string::npos) << checks[0].found;
}

}  // namespace
}  // namespace ddprun::doctor
