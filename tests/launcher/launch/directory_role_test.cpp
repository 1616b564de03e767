// Tests which of several agents with the same run directory leads the job, and which agents follow it. Most tests call
// acquire_or_follow() with a real lock file.
#include "launcher/launch/directory_role.hpp"

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
using Lead = rendezvous::NodeShellSettings::Lead;
using Role = DirectoryRole;

constexpr std::optional<Lead> kOneMachine = std::nullopt;

std::optional<NetworkStart> network_with_lead(std::optional<Lead> lead) {
  if (!lead) return std::nullopt;
  NetworkStart start;
  start.shell.lead = *lead;
  return start;
}

// A probe takes the lock for a short time. If another agent tries to take the lock in that time, it is refused.
TEST(DirectoryRole, TheLockIsProbedOnlyIfNeeded) {
  const auto depends_on_lock = [](std::optional<Lead> lead, const char* run_dir) {
    return leader_by_settings(network_with_lead(lead), run_dir) == DirectoryLeader::kHolderOfLock;
  };
  for (const auto lead : {kOneMachine, std::optional(Lead::kYes), std::optional(Lead::kNo)}) {
    EXPECT_FALSE(depends_on_lock(lead, "run"));
  }
  EXPECT_TRUE(depends_on_lock(Lead::kIfPortIsFree, "run"));
  EXPECT_FALSE(depends_on_lock(Lead::kIfPortIsFree, ""));
}

class AcquireOrFollow : public testing::Test {
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
  // A lock belongs to an open file description. So a second descriptor in this process acts like a descriptor of another
  // agent.
  void take_lock_elsewhere() { lock_of_another_ = take_run_lock(run_dir_); }
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

TEST_F(AcquireOrFollow, EveryInput) {
  struct Row {
    std::optional<Lead> lead;
    bool has_run_dir;
    // The expected role for each combination of two facts: another agent has the lock, and the attempt to open the run
    // directory is refused. nullopt means that the refusal is the final result.
    std::optional<Role> free, held, free_but_refused, held_and_refused;
  };
  constexpr std::optional<Role> kRefuse = std::nullopt;
  const std::vector<Row> table{
      // A job on one machine: no other agent can lead. So if the run directory cannot be opened, the error is final.
      {kOneMachine, true, Role::kLead, Role::kLead, kRefuse, kRefuse},
      {kOneMachine, false, Role::kLead, Role::kLead, kRefuse, kRefuse},
      // A job on several machines without a common run directory: each agent opens its own folders.
      {Lead::kYes, false, Role::kLead, Role::kLead, kRefuse, kRefuse},
      {Lead::kIfPortIsFree, false, Role::kLead, Role::kLead, kRefuse, kRefuse},
      {Lead::kNo, false, Role::kLead, Role::kLead, kRefuse, kRefuse},
      // A job on several machines with a common run directory.
      {Lead::kYes, true, Role::kLead, Role::kLead, kRefuse, kRefuse},
      {Lead::kIfPortIsFree, true, Role::kLead, Role::kFollow, kRefuse, Role::kFollow},
      {Lead::kNo, true, Role::kFollow, Role::kFollow, Role::kFollow, Role::kFollow},
  };
  for (const bool held : {false, true}) {
    if (held) take_lock_elsewhere();
    for (std::size_t i = 0; i < table.size(); ++i) {
      const Row& row = table[i];
      const auto role = [&](bool refused) -> std::optional<Role> {
        auto network = network_with_lead(row.lead);
        const auto open = [&] {
          if (refused) throw UsageError("another config");
        };
        try {
          return acquire_or_follow(row.has_run_dir ? run_dir_ : fs::path(), network, steps(open));
        } catch (const UsageError&) {
          return std::nullopt;
        }
      };
      EXPECT_EQ(role(false), held ? row.held : row.free) << "row " << i;
      EXPECT_EQ(role(true), held ? row.held_and_refused : row.free_but_refused) << "row " << i;
    }
  }
}

TEST_F(AcquireOrFollow, TheFirstAgentLeads) {
  auto network = network_with_lead(Lead::kIfPortIsFree);
  EXPECT_EQ(acquire_or_follow(run_dir_, network, steps([] {})), Role::kLead);
  EXPECT_EQ(network->shell.lead, Lead::kIfPortIsFree);
  EXPECT_EQ(checks_, 1);
  EXPECT_EQ(openings_, 1);
}

TEST_F(AcquireOrFollow, ALaterAgentFollows) {
  take_lock_elsewhere();
  auto network = network_with_lead(Lead::kIfPortIsFree);
  EXPECT_EQ(acquire_or_follow(run_dir_, network, steps([] {})), Role::kFollow);
  EXPECT_EQ(network->shell.lead, Lead::kNo);
  EXPECT_EQ(checks_ + openings_, 0);
}

TEST_F(AcquireOrFollow, AnOvertakenAgentFollows) {
  auto network = network_with_lead(Lead::kIfPortIsFree);
  const auto overtaken = [this] {
    take_lock_elsewhere();
    throw UsageError("in use");
  };
  EXPECT_EQ(acquire_or_follow(run_dir_, network, steps(overtaken)), Role::kFollow);
  EXPECT_EQ(network->shell.lead, Lead::kNo);
}

TEST_F(AcquireOrFollow, ARefusalIsFinalWithoutAnotherOwner) {
  auto network = network_with_lead(Lead::kIfPortIsFree);
  EXPECT_THROW(acquire_or_follow(run_dir_, network, steps([] { throw UsageError("another config"); })), UsageError);
  EXPECT_EQ(network->shell.lead, Lead::kIfPortIsFree);
}

TEST_F(AcquireOrFollow, ARefusalIsFinalForTheFirstNode) {
  take_lock_elsewhere();
  const auto refused = [] { throw UsageError("in use"); };
  std::optional<NetworkStart> none;
  EXPECT_THROW(acquire_or_follow(run_dir_, none, steps(refused)), UsageError);
  auto first = network_with_lead(Lead::kYes);
  EXPECT_THROW(acquire_or_follow(run_dir_, first, steps(refused)), UsageError);
}

TEST_F(AcquireOrFollow, AFailedCheckIsFinal) {
  auto network = network_with_lead(Lead::kIfPortIsFree);
  LeaderSteps refused_check = steps([] {});
  refused_check.check = [this] {
    take_lock_elsewhere();
    throw UsageError("checkpoints of an earlier run");
  };
  EXPECT_THROW(acquire_or_follow(run_dir_, network, refused_check), UsageError);
  EXPECT_EQ(openings_, 0);
}

}  // namespace
}  // namespace ddprun
