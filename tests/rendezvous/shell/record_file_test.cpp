// The file in which a node is remembered: what is written is read, nobody else reads it, and each agent has its own.
#include "rendezvous/shell/record_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "common/temporary_folder.hpp"

namespace ddprun::rendezvous {
namespace {

namespace fs = std::filesystem;

RememberedNode some_node() {
  RememberedNode node;
  node.id.fill(7);
  node.incarnation = 5;
  node.record.standing.promised_term = 3;
  node.record.standing.current = {.id = {3, 9}, .born = 2, .nodes = 4, .rank = 2};
  node.record.standing.budget = {.restart_count = 2, .used = 1, .memory = std::string("a\0\xff", 3), .first_number = 6};
  node.record.coordinator = {.group_rank = 0, .node = {}, .address = {"10.0.0.1", 29400}};
  node.record.successors = {{.group_rank = 1, .node = {}, .address = {"::1", 7}}};
  node.record.roster = {.origin = {2, 9}, .nodes = {{1}, {2}}};
  return node;
}

TEST(RecordFile, KeepsEverything) {
  const test::TemporaryFolder folder;
  const auto file = RecordFile::claim(folder.path() / "state", "job");
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->read());
  ASSERT_TRUE(file->write(some_node()));
  const auto back = file->read();
  ASSERT_TRUE(back);
  EXPECT_EQ(back->id, some_node().id);
  EXPECT_EQ(back->incarnation, 5u);
  EXPECT_EQ(back->record.standing, some_node().record.standing);
  EXPECT_EQ(back->record.coordinator, some_node().record.coordinator);
  EXPECT_EQ(back->record.successors, some_node().record.successors);
  EXPECT_EQ(back->record.roster, some_node().record.roster);
  file->forget();
  EXPECT_FALSE(file->read());
}

TEST(RecordFile, AnIncarnationIsLaterThanTheOneBeforeItWhateverTheClockSays) {
  EXPECT_EQ(next_incarnation(std::nullopt, 1000), 1000u);
  RememberedNode before = some_node();
  before.incarnation = 2000;
  EXPECT_EQ(next_incarnation(before, 3000), 3000u);
  EXPECT_EQ(next_incarnation(before, 1000), 2001u);
}

TEST(RecordFile, IsItsUsersOnly) {
  const test::TemporaryFolder folder;
  const auto file = RecordFile::claim(folder.path() / "state", "job");
  ASSERT_TRUE(file->write(some_node()));
  struct stat status {};
  ASSERT_EQ(::stat((folder.path() / "state" / "job").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  ASSERT_EQ(::stat((folder.path() / "state").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
}

TEST(RecordFile, TwoAgentsOfOneJobHaveTwo) {
  const test::TemporaryFolder folder;
  auto first = RecordFile::claim(folder.path(), "job");
  const auto second = RecordFile::claim(folder.path(), "job");
  ASSERT_TRUE(first->write(some_node()));
  EXPECT_FALSE(second->read());
  first.reset();
  EXPECT_TRUE(RecordFile::claim(folder.path(), "job")->read());  // who comes back after a crash is who it was
}

TEST(RecordFile, OnceForgottenNothingStays) {
  const test::TemporaryFolder folder;
  auto first = RecordFile::claim(folder.path(), "job");
  auto second = RecordFile::claim(folder.path(), "job");
  ASSERT_TRUE(first->write(some_node()));
  ASSERT_TRUE(second->write(some_node()));
  first->forget();
  first.reset();
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "job.lock"));
  second.reset();
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "job-1"));
  EXPECT_TRUE(RecordFile::claim(folder.path(), "job"));
}

TEST(RecordFile, DamageIsNothing) {
  const test::TemporaryFolder folder;
  const auto file = RecordFile::claim(folder.path(), "job");
  std::ofstream(folder.path() / "job") << "{\"format\": 1, \"boot\"";
  EXPECT_FALSE(file->read());
}

}  // namespace
}  // namespace ddprun::rendezvous
