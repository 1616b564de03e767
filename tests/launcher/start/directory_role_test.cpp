// Which agent leads and which ones follow when agents of one job get the same run directory: the decision for every input, and
// open_or_follow() with a real lock in a temporary folder.
#include "launcher/start/directory_role.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/run_directory/run_lock.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Lead = DirectoryQuestion::Lead;
using Role = DirectoryRole;

constexpr std::optional<Lead> kOneMachine = std::nullopt;

TEST(DirectoryRole, EveryInput) {
  struct Row {
    std::optional<Lead> lead;
    bool has_run_dir;
    // By another_holds_lock, opening_refused:
    Role free, held, free_but_refused, held_and_refused;
  };
  const std::vector<Row> table{
      // One machine: there is no leader to follow, so a refusal stands.
      {kOneMachine, true, Role::kLead, Role::kLead, Role::kRefuse, Role::kRefuse},
      {kOneMachine, false, Role::kLead, Role::kLead, Role::kRefuse, Role::kRefuse},
      // Several machines and no run directory: each agent has its own folders.
      {Lead::kYes, false, Role::kLead, Role::kLead, Role::kRefuse, Role::kRefuse},
      {Lead::kIfPortIsFree, false, Role::kLead, Role::kLead, Role::kRefuse, Role::kRefuse},
      {Lead::kNo, false, Role::kLead, Role::kLead, Role::kRefuse, Role::kRefuse},
      // Several machines and a run directory.
      {Lead::kYes, true, Role::kLead, Role::kLead, Role::kRefuse, Role::kRefuse},
      {Lead::kIfPortIsFree, true, Role::kLead, Role::kFollow, Role::kRefuse, Role::kFollow},
      {Lead::kNo, true, Role::kFollow, Role::kFollow, Role::kFollow, Role::kFollow},
  };
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Row& row = table[i];
    const auto role = [&](bool held, bool refused) {
      return role_in_directory(
          {.lead = row.lead, .has_run_dir = row.has_run_dir, .another_holds_lock = held, .opening_refused = refused});
    };
    EXPECT_EQ(role(false, false), row.free) << "row " << i;
    EXPECT_EQ(role(true, false), row.held) << "row " << i;
    EXPECT_EQ(role(false, true), row.free_but_refused) << "row " << i;
    EXPECT_EQ(role(true, true), row.held_and_refused) << "row " << i;
  }
}

// The query takes the lock for a moment, in which another agent would be refused the lock.
TEST(DirectoryRole, TheLockIsAskedOnlyWhereItDecides) {
  for (const bool refused : {false, true}) {
    for (const auto lead : {kOneMachine, std::optional(Lead::kYes), std::optional(Lead::kNo)}) {
      EXPECT_FALSE(depends_on_lock({.lead = lead, .has_run_dir = true, .opening_refused = refused}));
    }
    EXPECT_TRUE(depends_on_lock({.lead = Lead::kIfPortIsFree, .has_run_dir = true, .opening_refused = refused}));
    EXPECT_FALSE(depends_on_lock({.lead = Lead::kIfPortIsFree, .has_run_dir = false, .opening_refused = refused}));
  }
}

class OpenOrFollow : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = (fs::temp_directory_path() / "ddprun_role_XXXXXX").string();
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    run_dir_ = made;
  }
  void TearDown() override {
    if (lock_of_another_ >= 0) ::close(lock_of_another_);
    fs::remove_all(run_dir_);
  }
  static std::optional<NetworkStart> node_that(Lead lead) {
    NetworkStart start;
    start.shell.lead = lead;
    return start;
  }
  // A lock belongs to the open file, so another descriptor of this process stands for another agent.
  void another_agent_takes_it() { lock_of_another_ = take_run_lock(run_dir_); }
  LeaderSteps steps(std::function<void()> open) {
    return {.check = [this] { ++checks_; },
            .open =
                [this, open = std::move(open)] {
                  ++openings_;
                  open();
                }};
  }

  fs::path run_dir_;
  int lock_of_another_ = -1;
  int checks_ = 0;
  int openings_ = 0;
};

TEST_F(OpenOrFollow, TheFirstAgentLeads) {
  auto network = node_that(Lead::kIfPortIsFree);
  EXPECT_EQ(open_or_follow(run_dir_, network, steps([] {})), Role::kLead);
  EXPECT_EQ(network->shell.lead, Lead::kIfPortIsFree);
  EXPECT_EQ(checks_, 1);
  EXPECT_EQ(openings_, 1);
}

TEST_F(OpenOrFollow, ALaterAgentFollowsAndDoesNotLeadTheJob) {
  another_agent_takes_it();
  auto network = node_that(Lead::kIfPortIsFree);
  EXPECT_EQ(open_or_follow(run_dir_, network, steps([] {})), Role::kFollow);
  EXPECT_EQ(network->shell.lead, Lead::kNo);
  EXPECT_EQ(checks_ + openings_, 0);
}

TEST_F(OpenOrFollow, AnAgentThatWasOvertakenFollows) {
  auto network = node_that(Lead::kIfPortIsFree);
  const auto overtaken = [this] {
    another_agent_takes_it();
    throw UsageError("in use");
  };
  EXPECT_EQ(open_or_follow(run_dir_, network, steps(overtaken)), Role::kFollow);
  EXPECT_EQ(network->shell.lead, Lead::kNo);
}

TEST_F(OpenOrFollow, ARefusalStandsWhenNobodyElseHasTheDirectory) {
  auto network = node_that(Lead::kIfPortIsFree);
  EXPECT_THROW(open_or_follow(run_dir_, network, steps([] { throw UsageError("another config"); })), UsageError);
  EXPECT_EQ(network->shell.lead, Lead::kIfPortIsFree);
}

TEST_F(OpenOrFollow, ARefusalStandsForTheOnlyMachineAndForTheFirstNode) {
  another_agent_takes_it();
  const auto refused = [] { throw UsageError("in use"); };
  std::optional<NetworkStart> none;
  EXPECT_THROW(open_or_follow(run_dir_, none, steps(refused)), UsageError);
  auto first = node_that(Lead::kYes);
  EXPECT_THROW(open_or_follow(run_dir_, first, steps(refused)), UsageError);
}

TEST_F(OpenOrFollow, ARefusedCheckIsFinalAlsoWhenAnotherAgentComes) {
  auto network = node_that(Lead::kIfPortIsFree);
  LeaderSteps refused_check = steps([] {});
  refused_check.check = [this] {
    another_agent_takes_it();
    throw UsageError("checkpoints of an earlier run");
  };
  EXPECT_THROW(open_or_follow(run_dir_, network, refused_check), UsageError);
  EXPECT_EQ(openings_, 0);
}

}  // namespace
}  // namespace ddprun
