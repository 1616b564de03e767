// Tests that a failed check throws an exception with file and line, in debug and in release builds.
#include "common/base/check.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

template <class Part>
std::string message_of(Part part) {
  try {
    part();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::string expected(int line, const std::string& sentence) {
  return "internal error at tests/common/base/check_test.cpp:" + std::to_string(line) + ": " + sentence +
         "; this is a bug in ddprun: report it with this line";
}

TEST(Check, NamesFileAndLineOfTheCaller) {
  const int line = __LINE__ + 1;
  EXPECT_EQ(message_of([] { check(1 > 2, "one is not more than two"); }), expected(line, "one is not more than two"));
}

TEST(Check, PassesWhenTheConditionHolds) {
  check(2 > 1, "two is not more than one");
  std::vector<int> workers{7, 8};
  of_rank(workers, 1) = 9;
  EXPECT_EQ(first_of(workers, "unused"), 7);
  EXPECT_EQ(of_rank(workers, 1), 9);
  const std::optional<int> there = 5;
  EXPECT_EQ(existing(there, "nothing"), 5);
}

TEST(Check, ThrowsInsteadOfReadingMissingValues) {
  const std::optional<int> missing;
  const std::vector<int> empty;
  int line = __LINE__ + 1;
  EXPECT_EQ(message_of([&] { return existing(missing, "there is no step"); }), expected(line, "there is no step"));
  line = __LINE__ + 1;
  EXPECT_EQ(message_of([&] { return first_of(empty, "no worker"); }), expected(line, "no worker"));
  const std::string no_such_rank = "expected a local rank below the number of workers on this node";
  line = __LINE__ + 1;
  EXPECT_EQ(message_of([&] { return of_rank(empty, 0); }), expected(line, no_such_rank));
  line = __LINE__ + 1;
  EXPECT_EQ(message_of([&] { return of_rank(empty, -1); }), expected(line, no_such_rank));
}

}  // namespace
}  // namespace ddprun
