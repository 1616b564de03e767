// Tests the comparison of models, buckets and states at the start of a group, in real processes.
#include "trainer/parallel/equal_start.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "common/base/error.hpp"
#include "tests/trainer/parallel/ranks.hpp"
#include "trainer/parallel/data_parallel.hpp"

namespace ddprun::trainer {
namespace {

NamedTensor trained(const std::string& name, const at::Tensor& values) {
  return {name, values.clone().set_requires_grad(true)};
}

TEST(EqualStart, EveryRankReportsDifferentModels) {
  const auto rank = as_rank_of(3);
  if (!rank) return;
  const bool odd = rank->environment.rank == 1;
  const auto w = trained("fc.weight", at::ones({odd ? 5 : 4}));
  std::string text = "no error";
  try {
    DataParallel parallel({w}, {}, rank->group, {});
  } catch (const UsageError& error) {
    text = error.what();
  }
  if (odd) {
    EXPECT_NE(text.find("expected \"fc.weight Float [4]\", found \"fc.weight Float [5]\""), std::string::npos) << text;
  } else {
    EXPECT_NE(text.find("the model of rank 0 differs from the model of rank 1"), std::string::npos) << text;
  }
}

TEST(EqualStart, EveryRankReportsDifferentStrides) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const bool odd = rank->environment.rank == 1;
  const NamedTensor w{"conv.weight", (odd ? at::ones({3, 2}).t() : at::ones({2, 3})).set_requires_grad(true)};
  std::string text = "no error";
  try {
    DataParallel parallel({w}, {}, rank->group, {});
  } catch (const UsageError& error) {
    text = error.what();
  }
  if (odd) {
    EXPECT_NE(text.find("expected \"conv.weight Float [2, 3]\", found \"conv.weight Float [2, 3] with strides [1, 2]\""),
              std::string::npos)
        << text;
  } else {
    EXPECT_NE(text.find("the model of rank 0 differs from the model of rank 1"), std::string::npos) << text;
  }
}

std::int64_t calls(const Rank& rank) {
  return static_cast<std::int64_t>(rank.group->getBackend(c10::kCPU)->getSequenceNumberForGroup());
}

TEST(EqualStart, EqualRanksStartWithOneCollective) {
  const auto rank = as_rank_of(3);
  if (!rank) return;
  const auto w = trained("w", at::arange(4, at::kFloat));
  const std::int64_t before = calls(*rank);
  const DataParallel parallel({w}, {{"mean", at::ones({3})}}, rank->group, {});
  EXPECT_EQ(calls(*rank) - before, 1);
}

TEST(EqualStart, AReplacementGetsTheBucketsOfRank0) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const auto v = trained("v", at::ones({4})), w = trained("w", at::ones({4}));
  const BucketOrder kept{{1}, {0}};
  const DataParallel parallel({v, w}, {}, rank->group, {}, rank->environment.rank == 0 ? kept : BucketOrder{},
                              DataParallel::State::kEqual);
  EXPECT_EQ(parallel.bucket_order(), kept);
}

TEST(EqualStart, TheDescriptionContainsOrderAndStrides) {
  const NamedTensor a{"a", at::ones({2, 3})}, b{"b", at::ones({2, 3}).t()};
  EXPECT_EQ(describe_model({a, b}, {b}), "a Float [2, 3]\nb Float [3, 2] with strides [1, 3]\nb Float [3, 2]\n");
  EXPECT_NE(describe_model({a, b}, {}), describe_model({b, a}, {}));
}

}  // namespace
}  // namespace ddprun::trainer
