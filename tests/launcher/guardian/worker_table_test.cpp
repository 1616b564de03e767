// Tests the guardian's table of workers. The workers are idle child processes of the test.
#include "launcher/guardian/worker_table.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace ddprun::guardian {
namespace {

class WorkerTableTest : public testing::Test {
 protected:
  void SetUp() override {
    pid_ = ::fork();
    if (pid_ == 0) ::_exit(0);
    ASSERT_GT(pid_, 0);
  }
  void TearDown() override { ::waitpid(pid_, nullptr, 0); }

  pid_t pid_ = -1;
  WorkerTable table_;
};

TEST_F(WorkerTableTest, AWorkerIsFoundByNumberProcessAndPidfd) {
  const WorkerTable::Worker worker = table_.add(4, pid_, 100, false);
  ASSERT_GE(worker.pidfd, 0);
  EXPECT_EQ(table_.find(4)->pid, pid_);
  EXPECT_EQ(table_.find(4)->started_us, 100);
  EXPECT_EQ(table_.number_of_process(pid_), 4);
  EXPECT_EQ(table_.number_of_pidfd(worker.pidfd), 4);
  EXPECT_EQ(table_.find(5), nullptr);
  EXPECT_EQ(table_.number_of_process(::getpid()), std::nullopt);
}

TEST_F(WorkerTableTest, ARemovedWorkerKeepsItsMarkUntilTheNextRound) {
  const int pidfd = table_.add(4, pid_, 100, false, {.rank = "9", .store_port = 700}).pidfd;
  table_.note_reached(4, SIGTERM);
  table_.remove(4);
  EXPECT_TRUE(table_.none_at_work());
  EXPECT_EQ(table_.find(4), nullptr);
  EXPECT_EQ(table_.number_of_pidfd(pidfd), std::nullopt);
  EXPECT_EQ(::fcntl(pidfd, F_GETFD), -1);
  ASSERT_EQ(table_.marks().size(), 1u);
  EXPECT_EQ(table_.marks()[0].pid, pid_);
  EXPECT_EQ(table_.marks()[0].rank, "9");
  EXPECT_EQ(table_.marks()[0].signals, 1u << (SIGTERM - 1));
  table_.forget_ended();
  EXPECT_TRUE(table_.marks().empty());
}

TEST_F(WorkerTableTest, AKeptEndedWorkerHasNoProcess) {
  const int pidfd = table_.add(4, pid_, 100, false).pidfd;
  table_.keep_ended(4, {.kind = Notice::Kind::kExited, .worker = 4});
  EXPECT_EQ(::fcntl(pidfd, F_GETFD), -1);
  EXPECT_EQ(table_.number_of_process(pid_), std::nullopt);
  EXPECT_FALSE(table_.none_at_work());
  table_.remove(4);
  EXPECT_TRUE(table_.none_at_work());
}

TEST_F(WorkerTableTest, SparesAreSkippedUntilActivation) {
  table_.add(4, pid_, 100, true);
  EXPECT_TRUE(table_.none_at_work());
  EXPECT_TRUE(table_.has_spares());
  EXPECT_EQ(table_.without_spares({1, pid_}), std::vector<pid_t>{1});
  EXPECT_TRUE(table_.marks().empty());
  table_.forget_ended();  // removes ended workers, as the guardian does at the end of a round
  EXPECT_TRUE(table_.activate(4, "7", 700));
  EXPECT_FALSE(table_.none_at_work());
  EXPECT_FALSE(table_.has_spares());
  EXPECT_EQ(table_.without_spares({1, pid_}), (std::vector<pid_t>{1, pid_}));
  ASSERT_EQ(table_.marks().size(), 1u);
  EXPECT_EQ(table_.marks()[0].rank, "7");
  EXPECT_FALSE(table_.activate(4));
  EXPECT_FALSE(table_.activate(5));
  table_.remove(4);
}

}  // namespace
}  // namespace ddprun::guardian
