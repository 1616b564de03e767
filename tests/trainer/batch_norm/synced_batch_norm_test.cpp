// Tests synced batch norm in real processes. The expected values come from torch::nn::BatchNorm2d, which runs over all samples
// in one process. A seed determines how many samples each rank has (some ranks have none), the memory layouts and the types.
#include "trainer/batch_norm/synced_batch_norm.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <future>
#include <numeric>
#include <random>
#include <thread>

#include "common/base/error.hpp"
#include "tests/trainer/parallel/ranks.hpp"
#include "trainer/batch_norm/batch_norm.hpp"
#include "trainer/batch_norm/rank_exchange.hpp"
#include "trainer/parallel/group_breaker.hpp"

namespace ddprun::trainer {
namespace {

// Returns the seed of the random cases. The seed must be the same on every rank, so it is stored in an environment variable,
// which child processes inherit. Set DDPRUN_TEST_SEED to repeat a run.
std::uint64_t seed_of_this_run() {
  if (const char* given = std::getenv("DDPRUN_TEST_SEED")) return std::strtoull(given, nullptr, 10);
  const std::uint64_t drawn = std::random_device{}();
  ::setenv("DDPRUN_TEST_SEED", std::to_string(drawn).c_str(), 1);
  return drawn;
}

struct Drawn {
  at::Tensor x;                      // the samples of all ranks
  at::Tensor gradient;               // gradient of the loss with respect to the result
  std::vector<std::int64_t> shares;  // number of samples of each rank; 0 is possible for all ranks except rank 0
  std::string text;
};

Drawn draw(std::mt19937_64& chance, int world) {
  const auto number = [&](std::int64_t lowest, std::int64_t highest) {
    return std::uniform_int_distribution<std::int64_t>(lowest, highest)(chance);
  };
  Drawn drawn;
  std::int64_t samples = 0;
  for (int rank = 0; rank < world; ++rank) {
    const bool none = rank > 0 && number(0, 3) == 0;
    drawn.shares.push_back(none ? 0 : number(1, 6));
    samples += drawn.shares.back();
  }
  // Each channel has many values. With only a few values, the variance may be nearly zero, and a division by its square root
  // amplifies rounding errors.
  const std::vector<std::int64_t> sizes{samples, number(1, 40), number(4, 7), number(4, 7)};
  at::Generator generator = at::detail::createCPUGenerator(chance());
  const double offset = std::array{0.0, 1.0, 100.0}[static_cast<std::size_t>(number(0, 2))];
  drawn.x = at::randn(sizes, generator) * 3 + offset;
  drawn.gradient = at::randn(sizes, generator);
  const bool last = number(0, 1) == 1;
  if (last) {
    drawn.x = drawn.x.contiguous(at::MemoryFormat::ChannelsLast);
    drawn.gradient = drawn.gradient.contiguous(at::MemoryFormat::ChannelsLast);
  }
  drawn.text = c10::str(at::IntArrayRef(sizes), " of ", at::IntArrayRef(drawn.shares), " samples, mean ", offset,
                        last ? ", channels last" : "");
  return drawn;
}

// Returns a batch norm whose weights differ from the initial weights and are the same on every rank.
std::shared_ptr<BatchNorm> norm_of(std::int64_t channels) {
  const auto norm = batch_norm(channels);
  at::Generator generator = at::detail::createCPUGenerator(7);
  norm->weight.set_data(at::rand({channels}, generator) + 0.5);
  norm->bias.set_data(at::randn({channels}, generator));
  norm->running_mean.set_data(at::randn({channels}, generator));
  norm->running_var.set_data(at::rand({channels}, generator) + 0.5);
  return norm;
}

struct Passed {
  at::Tensor y, of_x, of_weight, of_bias;
};

Passed pass(BatchNorm& norm, const at::Tensor& x, const at::Tensor& gradient) {
  const at::Tensor input = x.detach().set_requires_grad(true);
  const at::Tensor y = norm.forward(input);
  const auto found = torch::autograd::grad({y}, {input, norm.weight, norm.bias}, {gradient});
  return {y.detach(), found[0], found[1], found[2]};
}

at::Tensor sum_of_all(const Rank& rank, const at::Tensor& own) {
  std::vector<at::Tensor> tensors{own.clone()};
  rank.group->allreduce(tensors)->wait();
  return tensors.front();
}

void expect_close(const at::Tensor& found, const at::Tensor& expected, double tolerance, const std::string& what) {
  EXPECT_EQ(found.scalar_type(), expected.scalar_type()) << what;
  const double scale = std::max(1.0, expected.abs().max().to(at::kDouble).item<double>());
  const double off = expected.numel() == 0 ? 0 : (found - expected).abs().max().to(at::kDouble).item<double>();
  EXPECT_LE(off, tolerance * scale) << what;
}

// Compares the results of this rank with the results of a batch norm over the samples of all ranks. As in the training loop, a
// rank that has no samples passes a stand-in: a sample of another rank, with weight 0.
void expect_plain_over_all(const Rank& rank, const Drawn& drawn) {
  const auto own = static_cast<std::size_t>(rank.environment.rank);
  const std::int64_t first = std::accumulate(drawn.shares.begin(), drawn.shares.begin() + rank.environment.rank, 0L);
  const std::int64_t samples = drawn.shares[own];
  const std::int64_t channels = drawn.x.size(1);

  const auto plain = norm_of(channels);
  const Passed expected = pass(*plain, drawn.x, drawn.gradient);

  const auto norm = norm_of(channels);
  SyncedBatchNorms synced(norm, rank.group);
  synced.count_own(samples > 0);
  const at::Tensor x = samples > 0 ? drawn.x.narrow(0, first, samples) : drawn.x.narrow(0, 0, 1);
  const at::Tensor gradient = samples > 0 ? drawn.gradient.narrow(0, first, samples) : at::zeros_like(x);
  const Passed found = pass(*norm, x, gradient);

  EXPECT_EQ(found.y.suggest_memory_format(), x.suggest_memory_format());
  // The tolerance for single values. The mean is up to 100, with a standard deviation of 3, and float32 has a relative rounding
  // error of about 1e-7.
  constexpr double kClose = 5e-5;
  // Some results are sums of several hundred products, and each product has a rounding error.
  constexpr double kCloseSum = 1e-3;
  if (samples > 0) {
    expect_close(found.y, expected.y.narrow(0, first, samples), kClose, "values");
    expect_close(found.of_x, expected.of_x.narrow(0, first, samples), kClose, "gradient of the input");
  } else {
    EXPECT_TRUE(found.of_x.equal(at::zeros_like(x))) << "a stand-in moves no weight of the layers before";
  }
  expect_close(sum_of_all(rank, found.of_weight), expected.of_weight, kCloseSum, "gradient of the weight");
  expect_close(sum_of_all(rank, found.of_bias), expected.of_bias, kCloseSum, "gradient of the bias");
  expect_close(norm->running_mean, plain->running_mean, 1e-5, "running mean");
  expect_close(norm->running_var, plain->running_var, kClose, "running variance");
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
}

TEST(SyncedBatchNorm, EqualsBatchNormOverAllRanksSamples) {
  constexpr int kWorld = 4, kRounds = 40;
  const std::uint64_t seed = seed_of_this_run();
  SCOPED_TRACE("DDPRUN_TEST_SEED=" + std::to_string(seed));
  const auto rank = as_rank_of(kWorld);
  if (!rank) return;
  std::mt19937_64 chance(seed);
  for (int round = 0; round < kRounds; ++round) {
    const Drawn drawn = draw(chance, kWorld);
    SCOPED_TRACE(drawn.text);
    expect_plain_over_all(*rank, drawn);
  }
}

TEST(SyncedBatchNorm, UsesFloat32StatisticsForReducedPrecision) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  at::Generator generator = at::detail::createCPUGenerator(5);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = (at::randn({8, 6, 5, 5}, generator) + 2).to(type);
    const at::Tensor gradient = at::randn({8, 6, 5, 5}, generator).to(type);
    const auto plain = norm_of(6), norm = norm_of(6);
    const Passed expected = pass(*plain, x.to(at::kFloat), gradient.to(at::kFloat));
    const SyncedBatchNorms synced(norm, rank->group);
    const std::int64_t first = 4 * rank->environment.rank;
    const Passed found = pass(*norm, x.narrow(0, first, 4), gradient.narrow(0, first, 4));
    const double one_rounding = type == at::kHalf ? 0x1p-10 : 0x1p-7;
    EXPECT_EQ(found.y.scalar_type(), type);
    expect_close(found.y.to(at::kFloat), expected.y.narrow(0, first, 4), one_rounding, "values");
    expect_close(found.of_x.to(at::kFloat), expected.of_x.narrow(0, first, 4), one_rounding, "gradient of the input");
    expect_close(sum_of_all(*rank, found.of_weight), expected.of_weight, 1e-5, "gradient of the weight");
    expect_close(norm->running_mean, plain->running_mean, 1e-6, "running mean");
    expect_close(norm->running_var, plain->running_var, 1e-5, "running variance");
  }
}

TEST(SyncedBatchNorm, HandlesASingleValueOverAllRanks) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const auto norm = norm_of(3);
  SyncedBatchNorms synced(norm, rank->group);
  synced.count_own(rank->environment.rank == 0);
  const Passed found = pass(*norm, at::ones({1, 3, 1, 1}), at::ones({1, 3, 1, 1}) * (1 - rank->environment.rank));
  expect_close(found.y.flatten(), norm->bias.detach(), 1e-4, "values");
  expect_close(norm->running_var, norm_of(3)->running_var * 0.9, 1e-6, "running variance");
}

TEST(SyncedBatchNorm, ExchangesNothingInEvaluationOrWhenSwitchedOff) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const auto norm = norm_of(3), plain = norm_of(3);
  const at::Tensor x = at::ones({2, 3, 4, 4}) * rank->environment.rank;
  sum_of_all(*rank, at::ones({1}));  // returns when both ranks are connected
  const auto backend = rank->group->getBackend(c10::kCPU);
  const auto before = backend->getSequenceNumberForGroup();
  {
    const SyncedBatchNorms synced(norm, rank->group);
    norm->eval();
    plain->eval();
    EXPECT_TRUE(norm->forward(x).equal(plain->forward(x)));
  }
  norm->train();
  plain->train();
  EXPECT_TRUE(norm->forward(x).equal(plain->forward(x)));
  EXPECT_EQ(backend->getSequenceNumberForGroup(), before);
  sum_of_all(*rank, at::ones({1}));
}

TEST(SyncedBatchNorm, RefusesAModelWithoutBatchNorm) {
  const auto model = std::make_shared<torch::nn::SequentialImpl>();
  EXPECT_THROW(SyncedBatchNorms(model, {}), UsageError);
}

// Rank 1 kills itself, and rank 0 must get an exception. If `in_backward` is true, rank 1 kills itself after its forward pass,
// and if false, before its forward pass.
void expect_loss_of_rank_1(bool in_backward) {
  GroupBreaker breaker(2);
  const auto rank = as_rank_of(2, {{1, -SIGKILL}}, &breaker);
  if (!rank) return;
  sum_of_all(*rank, at::ones({1}));  // returns when both ranks are connected
  const auto norm = norm_of(3);
  bool waiting = false;
  const SyncedBatchNorms synced(norm, rank->group, [&waiting](bool waits) { waiting = waits; });
  const bool dies = rank->environment.rank == 1;
  if (dies && !in_backward) ::raise(SIGKILL);
  try {
    const at::Tensor y = norm->forward(at::ones({2, 3, 4, 4}).set_requires_grad(true));
    if (dies) ::raise(SIGKILL);
    EXPECT_TRUE(in_backward);
    y.sum().backward();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_lost_peer(error)) << error.what();
  }
  EXPECT_TRUE(waiting);
}

TEST(SyncedBatchNorm, ThrowsIfARankIsLostInForward) {
  expect_loss_of_rank_1(/*in_backward=*/false);
}

TEST(SyncedBatchNorm, ThrowsIfARankIsLostInBackward) {
  expect_loss_of_rank_1(/*in_backward=*/true);
}

// Rank 1 stays alive but does not take part in the collective. Rank 0 waits for rank 1 until another thread aborts the process
// group, as in a regroup.
TEST(SyncedBatchNorm, ThrowsWhenTheGroupIsBroken) {
  GroupBreaker breaker(2);
  const auto rank = as_rank_of(2, {}, &breaker);
  if (!rank) return;
  sum_of_all(*rank, at::ones({1}));  // returns when both ranks are connected
  std::promise<void> waits;
  const auto norm = norm_of(3);
  const SyncedBatchNorms synced(norm, rank->group, [&waits](bool begins) {
    if (begins) waits.set_value();
  });
  if (rank->environment.rank == 1) {
    rank->store->wait({"broken"}, kTestTimeout);
    return;
  }
  const std::jthread breaks([&] {
    waits.get_future().wait();
    breaker.break_group();
  });
  try {
    norm->forward(at::ones({2, 3, 4, 4}));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_lost_peer(error)) << error.what();
  }
  rank->store->set("broken", std::vector<std::uint8_t>{1});
}

}  // namespace
}  // namespace ddprun::trainer
