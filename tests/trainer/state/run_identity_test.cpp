// The checkpoints that a training accepts as its own, and that this survives in its file.
#include "trainer/state/run_identity.hpp"

#include <gtest/gtest.h>

#include <system_error>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun::trainer {
namespace {

using test::TemporaryFolder;
using Earlier = std::vector<RunIdentity::Earlier>;

TEST(RunIdentity, EachTrainingHasOneOfItsOwn) {
  const RunIdentity one = new_run(), other = new_run();
  EXPECT_EQ(one.id.size(), 16U);
  EXPECT_EQ(one.id.find_first_not_of("0123456789abcdef"), std::string::npos) << one.id;
  EXPECT_NE(one.id, other.id);
  EXPECT_TRUE(one.has(one.id, 1'000'000));
  EXPECT_FALSE(one.has(other.id, 1));
  EXPECT_FALSE(one.has("", 1));
}

TEST(RunIdentity, WhatItBeganWithIsItsOwnUpToThere) {
  const RunIdentity first{.id = "a"};
  const RunIdentity second = new_run_from(first, "a", 4);
  EXPECT_TRUE(second.has("a", 4));
  EXPECT_FALSE(second.has("a", 5));
  EXPECT_FALSE(second.has("", 4));
  const RunIdentity third = new_run_from(second, second.id, 6);
  EXPECT_EQ(third.earlier, (Earlier{{"a", 4}, {second.id, 6}}));
  EXPECT_EQ(new_run_from(third, "a", 2).earlier, (Earlier{{"a", 2}}));  // back to a step before the second
  EXPECT_EQ(new_run_from(third, "b", 9).earlier, (Earlier{{"b", 9}}));  // from another run
  EXPECT_EQ(new_run_from({}, "", 3).earlier, (Earlier{{"", 3}}));
}

TEST(RunIdentity, ItsFileTellsAllOfIt) {
  const TemporaryFolder folder;
  const auto file = folder / "run" / "run.json";
  EXPECT_FALSE(read_run_identity(file));
  const RunIdentity run = new_run_from({.id = "a"}, "a", 4);
  keep_run_identity(file, run);
  EXPECT_EQ(read_run_identity(file), run);
  keep_run_identity(file, {});  // unknown: no checkpoint to keep
  EXPECT_EQ(read_run_identity(file), run);
  const RunIdentity other = new_run();
  keep_run_identity(file, other);
  EXPECT_EQ(read_run_identity(file), other);
}

TEST(RunIdentity, AFileThatSaysNothingIsNamedAndWrittenAnew) {
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
  keep_run_identity(file, run);
  EXPECT_EQ(read_run_identity(file), run);
  EXPECT_THROW(read_run_identity(folder.path()), UsageError);
  EXPECT_THROW(keep_run_identity(file / "below", run), std::system_error);
}

}  // namespace
}  // namespace ddprun::trainer
