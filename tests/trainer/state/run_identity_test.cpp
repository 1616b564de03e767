// Tests which checkpoints belong to a run, and that the run's file stores its identity.
#include "trainer/state/run_identity.hpp"

#include <gtest/gtest.h>

#include <system_error>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun::trainer {
namespace {

using test::TemporaryFolder;
using Earlier = std::vector<RunIdentity::Earlier>;

TEST(RunIdentity, EachTrainingHasADistinctIdentity) {
  const RunIdentity one = new_run(), other = new_run();
  EXPECT_EQ(one.id.size(), 16U);
  EXPECT_EQ(one.id.find_first_not_of("0123456789abcdef"), std::string::npos) << one.id;
  EXPECT_NE(one.id, other.id);
  EXPECT_TRUE(one.has(one.id, 1'000'000));
  EXPECT_FALSE(one.has(other.id, 1));
  EXPECT_FALSE(one.has("", 1));
}

TEST(RunIdentity, HistoryOfTheParentCountsUpToTheBranch) {
  const RunIdentity first{.id = "a"};
  const RunIdentity second = new_run_from(first, "a", 4);
  EXPECT_TRUE(second.has("a", 4));
  EXPECT_FALSE(second.has("a", 5));
  EXPECT_FALSE(second.has("", 4));
  const RunIdentity third = new_run_from(second, second.id, 6);
  EXPECT_EQ(third.earlier, (Earlier{{"a", 4}, {second.id, 6}}));
  // The new run starts at an earlier step than the step at which the second run started.
  EXPECT_EQ(new_run_from(third, "a", 2).earlier, (Earlier{{"a", 2}}));
  EXPECT_EQ(new_run_from(third, "b", 9).earlier, (Earlier{{"b", 9}}));  // the new run starts from an unrelated run
  EXPECT_EQ(new_run_from({}, "", 3).earlier, (Earlier{{"", 3}}));
}

TEST(RunIdentity, TheFileStoresAllFields) {
  const TemporaryFolder folder;
  const auto file = folder / "run" / "run.json";
  EXPECT_FALSE(read_run_identity(file));
  const RunIdentity run = new_run_from({.id = "a"}, "a", 4);
  write_run_identity(file, run);
  EXPECT_EQ(read_run_identity(file), run);
  write_run_identity(file, {});  // an unknown identity does not replace a known identity
  EXPECT_EQ(read_run_identity(file), run);
  const RunIdentity other = new_run();
  write_run_identity(file, other);
  EXPECT_EQ(read_run_identity(file), other);
}

TEST(RunIdentity, AnInvalidFileIsNamedAndRewritten) {
  const TemporaryFolder folder;
  const auto file = folder / "run.json";
  for (const char* text : {"", "{", "[]", "{\"run\":1,\"earlier\":[]}", "{\"run\":\"a\"}"}) {
    test::write_text(file, text);
    try {
      read_run_identity(file);
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(file.string()), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("json.exception"), std::string::npos) << error.what();
    }
  }
  const RunIdentity run = new_run();
  write_run_identity(file, run);
  EXPECT_EQ(read_run_identity(file), run);
  EXPECT_THROW(read_run_identity(folder.path()), UsageError);
  EXPECT_THROW(write_run_identity(file / "below", run), std::system_error);
}

}  // namespace
}  // namespace ddprun::trainer
