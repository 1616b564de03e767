// Tests which rendezvous settings a node derives from its command line: how the rendezvous port is used, and the minimum and
// maximum number of nodes.
#include "launcher/network/network_start.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

using MeetPort = rendezvous::NodeShellSettings::MeetPort;

Plan plan_of_script() {
  Plan plan;
  plan.kind = Plan::Kind::kProgram;
  plan.command = {"/bin/true"};
  plan.agent_store = true;
  plan.rendezvous.min_nodes = 2;
  plan.rendezvous.max_nodes = 3;
  plan.rendezvous.node_rank = 1;
  plan.rendezvous.host = "10.0.0.1";
  plan.rendezvous.port = 29500;
  return plan;
}

rendezvous::NodeShellSettings shell_of(const Plan& plan) {
  return prepare_network(plan, "", "5f0c6c1e9a47b83d20d1e4f7a95b3c68f21d0e7b4a8896c35d1f2e0b7a4c9d83").shell;
}

TEST(NetworkStart, MasterPortOfAStaticScriptStaysOpenForNodes) {
  Plan plan = plan_of_script();
  EXPECT_EQ(shell_of(plan).closing, MeetPort::kServesStore);
  plan.agent_store = false;
  EXPECT_EQ(shell_of(plan).closing, MeetPort::kClosesAtRelease) << "rank 0 opens it";
  plan.rendezvous.backend = RendezvousPlan::Backend::kC10d;
  EXPECT_EQ(shell_of(plan).closing, MeetPort::kStays);
}

TEST(NetworkStart, HelloHasTheNodeCountsOfTheCommand) {
  Plan plan = plan_of_script();
  EXPECT_EQ(shell_of(plan).node.member.min_nodes, 2);
  EXPECT_EQ(shell_of(plan).node.member.max_nodes, 3);
  plan.rendezvous.joins = true;
  EXPECT_EQ(shell_of(plan).node.member.max_nodes, 0) << "`ddprun join` has no --nnodes";
}

}  // namespace
}  // namespace ddprun
