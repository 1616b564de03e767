// Compares data-parallel training in real processes with closed forms. Gradients are means over the ranks, and all ranks start
// with the state of rank 0. A run that is interrupted after any step continues with bit-identical results.
#include "trainer/parallel/data_parallel.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "common/base/error.hpp"
#include "tests/trainer/parallel/ranks.hpp"

namespace ddprun::trainer {
namespace {

NamedTensor parameter(const std::string& name, at::Tensor values) {
  return {name, values.clone().set_requires_grad(true)};
}

// Makes one backward pass of a linear model. The loss is the sum of w * x over all elements of the parameters in `used`.
void linear_step(DataParallel& parallel, const std::vector<at::Tensor>& used, const at::Tensor& x, bool sync = true) {
  parallel.before_forward(sync);
  at::Tensor loss = at::zeros({});
  for (const auto& weight : used) loss = loss + (weight * x).sum();
  parallel.before_backward(loss, sync);
  loss.backward();
  parallel.after_backward(sync);
}

std::int64_t collectives(const Rank& rank) {
  return static_cast<std::int64_t>(rank.group->getBackend(c10::kCPU)->getSequenceNumberForGroup());
}

TEST(DataParallel, AveragesGradientsOverRanks) {
  const auto rank = as_rank_of(3);
  if (!rank) return;
  for (const bool view : {true, false}) {
    SCOPED_TRACE(view ? "gradients are views of buckets" : "gradients are copied");
    DdpConfig config;
    config.gradient_as_bucket_view = view;
    const auto w = parameter("w", at::ones({4})), v = parameter("v", at::ones({4}));
    DataParallel parallel({w, v}, {}, rank->group, config);
    for (int step = 0; step < 3; ++step) {
      linear_step(parallel, {w.tensor, v.tensor}, at::full({4}, 3.0 * rank->environment.rank + step));
      // The mean over the ranks is (3 * 0 + 3 * 1 + 3 * 2) / 3 + step.
      EXPECT_TRUE(w.tensor.grad().allclose(at::full({4}, 3.0 + step))) << w.tensor.grad();
      // The gradient of v is close to the gradient of w but not bit-identical, because its position in the bucket differs.
      EXPECT_TRUE(v.tensor.grad().allclose(w.tensor.grad()));
      parallel.zero_grad();
      EXPECT_FALSE(w.tensor.grad().defined());
    }
  }
}

TEST(DataParallel, AWorldOfOneNeedsNoGroup) {
  const auto w = parameter("w", at::ones({4}));
  DataParallel parallel({w}, {}, {}, {});
  linear_step(parallel, {w.tensor}, at::full({4}, 2.0));
  EXPECT_TRUE(w.tensor.grad().equal(at::full({4}, 2.0)));
  parallel.zero_grad();
  EXPECT_FALSE(w.tensor.grad().defined());
  EXPECT_TRUE(parallel.bucket_order().empty());
}

TEST(DataParallel, UsesRank0sStateAndBuffers) {
  const auto rank = as_rank_of(3);
  if (!rank) return;
  const double own = rank->environment.rank;
  const auto w = parameter("w", at::full({4}, own));
  const NamedTensor frozen{"frozen", at::full({2}, own)};
  const NamedTensor mean{"mean", at::full({3}, own + 10)};
  const NamedTensor count{"num_batches_tracked", at::full({}, rank->environment.rank + 5, at::kLong)};
  DataParallel parallel({w, frozen}, {mean, count}, rank->group, {});
  EXPECT_TRUE(w.tensor.equal(at::zeros({4})));
  EXPECT_TRUE(mean.tensor.equal(at::full({3}, 10.0)));
  EXPECT_EQ(count.tensor.item<std::int64_t>(), 5);
  mean.tensor.add_(own);
  count.tensor.add_(rank->environment.rank + 1);
  linear_step(parallel, {w.tensor}, at::ones({4}));
  EXPECT_TRUE(mean.tensor.equal(at::full({3}, 10.0)));
  EXPECT_EQ(count.tensor.item<std::int64_t>(), 6);
}

// Returns the number of collectives that the constructor performs. The state has 4 parameters and 3 buffers on each of three
// ranks. `odd` is the value of the last buffer element on the last rank.
std::int64_t collectives_to_start(const Rank& rank, double odd) {
  const auto w = parameter("w", at::arange(4, at::kFloat));
  const NamedTensor mean{"mean", at::full({3}, 10.0)};
  if (rank.environment.rank == 2) mean.tensor[2] = odd;
  const std::int64_t before = collectives(rank);
  const DataParallel parallel({w}, {mean}, rank.group, {});
  EXPECT_TRUE(mean.tensor.equal(at::full({3}, 10.0)));
  return collectives(rank) - before;
}

TEST(DataParallel, FrozenParametersComeFromRank0) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const NamedTensor frozen{"frozen", at::full({3}, 5.0 + rank->environment.rank)};
  const auto w = parameter("w", at::ones({4}));
  const DataParallel parallel({frozen, w}, {}, rank->group, {});
  EXPECT_TRUE(frozen.tensor.equal(at::full({3}, 5.0)));
}

TEST(DataParallel, SendsTheStateOnlyIfItDiffers) {
  const auto rank = as_rank_of(3);
  if (!rank) return;
  EXPECT_EQ(collectives_to_start(*rank, 10.5), collectives_to_start(*rank, 10.0) + 1);
}

TEST(DataParallel, CountsASharedParameterOnce) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const auto w = parameter("encoder.w", at::ones({4}));
  DataParallel parallel({w, {"decoder.w", w.tensor}}, {}, rank->group, {});
  linear_step(parallel, {w.tensor, w.tensor}, at::full({4}, rank->environment.rank + 1.0));
  EXPECT_TRUE(w.tensor.grad().equal(at::full({4}, 3.0)));
  EXPECT_EQ(parallel.bucket_order(), (BucketOrder{{0}}));
}

TEST(DataParallel, AccumulationUsesOneAllReducePerStep) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const auto w = parameter("w", at::ones({4}));
  DataParallel parallel({w}, {}, rank->group, {});
  const at::Tensor x = at::full({4}, rank->environment.rank + 1.0);
  linear_step(parallel, {w.tensor}, x);  // the first step performs more collectives, because it rebuilds the buckets
  parallel.zero_grad();
  const auto before = collectives(*rank);
  for (int micro_batch = 0; micro_batch < 4; ++micro_batch) linear_step(parallel, {w.tensor}, x, micro_batch == 3);
  EXPECT_EQ(collectives(*rank) - before, 1);
  EXPECT_TRUE(w.tensor.grad().equal(at::full({4}, 4 * 1.5)));
}

TEST(DataParallel, NamesUnusedParametersBeforeTheOptimizerRuns) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const auto used = parameter("fc1.weight", at::ones({4})), unused = parameter("head.weight", at::ones({4}));
  DataParallel parallel({used, unused}, {}, rank->group, {});
  try {
    linear_step(parallel, {used.tensor}, at::ones({4}));
    FAIL() << "expected an error";
  } catch (const UsageError& error) {  // the error is a UsageError, because a restart would fail in the same way
    const std::string text = error.what();
    EXPECT_NE(text.find("1 of 2 parameters received no gradient in the backward pass"), std::string::npos) << text;
    EXPECT_NE(text.find(": head.weight. Use these parameters"), std::string::npos) << text;
    EXPECT_NE(text.find("find_unused_parameters"), std::string::npos) << text;
  }
}

TEST(DataParallel, AChangedStaticGraphGetsSpecificAdvice) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  DdpConfig config;
  config.static_graph = true;
  const auto a = parameter("a", at::ones({4})), b = parameter("b", at::ones({4}));
  DataParallel parallel({a, b}, {}, rank->group, config);
  linear_step(parallel, {a.tensor, b.tensor}, at::ones({4}));
  parallel.zero_grad();
  try {
    linear_step(parallel, {b.tensor}, at::ones({4}));
    FAIL() << "expected an error";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    // The error message does not name the rank. The caller that reports the error adds the rank.
    EXPECT_TRUE(text.starts_with("1 of 2 parameters received no gradient")) << text;
    EXPECT_NE(text.find("\"static_graph\": false"), std::string::npos) << text;
  }
}

TEST(DataParallel, NamesParametersThatStopBeingUsed) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const auto a = parameter("a", at::ones({4})), b = parameter("b", at::ones({4}));
  DataParallel parallel({a, b}, {}, rank->group, {});
  for (int step = 0; step < 2; ++step) {
    linear_step(parallel, {a.tensor, b.tensor}, at::ones({4}));
    parallel.zero_grad();
  }
  try {
    linear_step(parallel, {b.tensor}, at::ones({4}));
    FAIL() << "expected an error";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(": a. Use these parameters"), std::string::npos) << error.what();
  }
}

TEST(DataParallel, FindsUnusedParametersIfConfigured) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  DdpConfig config;
  config.find_unused_parameters = true;
  const auto a = parameter("a", at::ones({4})), b = parameter("b", at::ones({4}));
  DataParallel parallel({a, b}, {}, rank->group, config);
  for (int step = 0; step < 3; ++step) {
    // Rank 0 uses only `a`, and rank 1 uses both parameters, so the mean gradient of `b` is half of the gradient on rank 1. In
    // the last step no rank uses `b`.
    const bool both = rank->environment.rank == 1 && step < 2;
    linear_step(parallel, both ? std::vector{a.tensor, b.tensor} : std::vector{a.tensor}, at::full({4}, 2.0));
    EXPECT_TRUE(a.tensor.grad().equal(at::full({4}, 2.0)));
    if (step < 2) {
      EXPECT_TRUE(b.tensor.grad().equal(at::full({4}, 1.0)));
    } else {
      EXPECT_FALSE(b.tensor.grad().defined());
    }
    parallel.zero_grad();
  }
}

TEST(DataParallel, StaticGraphMayLeaveParametersUnused) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  DdpConfig config;
  config.static_graph = true;
  const auto a = parameter("a", at::ones({4})), b = parameter("b", at::ones({4})), unused = parameter("unused", at::ones({4}));
  DataParallel parallel({a, b, unused}, {}, rank->group, config);
  for (int step = 0; step < 4; ++step) {
    linear_step(parallel, {a.tensor, b.tensor}, at::full({4}, rank->environment.rank + step + 1.0));
    EXPECT_TRUE(a.tensor.grad().equal(at::full({4}, step + 1.5))) << step;
    EXPECT_TRUE(b.tensor.grad().equal(at::full({4}, step + 1.5))) << step;
    parallel.zero_grad();
  }
  EXPECT_EQ(parallel.bucket_order(), (BucketOrder{{2, 1, 0}}));
}

TEST(DataParallel, RefusesABucketOrderOfAnotherModel) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const auto w = parameter("w", at::ones({4}));
  const auto construct = [&] { DataParallel({w}, {}, rank->group, {}, {{0, 1}}); };
  if (rank->environment.rank == 0) {
    EXPECT_THROW(construct(), BadCheckpointError);
  } else {
    EXPECT_ANY_THROW(construct());  // rank 0 has exited, so this rank gets the error for a lost rank
  }
}

TEST(DataParallel, ALostPeerFailsTheBackwardPass) {
  const auto rank = as_rank_of(2, {{1, -SIGKILL}});
  if (!rank) return;
  const auto w = parameter("w", at::ones({4}));
  DataParallel parallel({w}, {}, rank->group, {});
  linear_step(parallel, {w.tensor}, at::ones({4}));
  if (rank->environment.rank == 1) ::raise(SIGKILL);
  try {
    for (int step = 0; step < 1000; ++step) linear_step(parallel, {w.tensor}, at::ones({4}));
    FAIL() << "training without rank 1 continued";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_lost_peer(error)) << error.what();
  }
}

// ---- Bit-identical results after a resume ----

constexpr int kSteps = 6;
constexpr std::int64_t kIn = 60, kHidden = 300, kBatch = 8;

// Returns pseudo-random numbers, which are the same on every rank and different for each seed.
at::Tensor noise(at::IntArrayRef shape, std::int64_t seed) {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  const at::Tensor phase = at::arange(count, at::kDouble) * 12.9898 + static_cast<double>(seed) * 78.233;
  const at::Tensor wild = phase.sin() * 43758.5453;
  return ((wild - wild.floor()) - 0.5).to(at::kFloat).reshape(shape).contiguous();
}

struct Network {
  // The parameters are not defined in the reverse order of their gradients, so the buckets are rebuilt after the first step.
  std::vector<NamedTensor> parameters{parameter("last.weight", noise({kHidden, 10}, 3) * 0.3),
                                      parameter("fc1.weight", noise({kIn, kHidden}, 1) * 0.3),
                                      parameter("fc2.weight", noise({kHidden, kHidden}, 2) * 0.3),
                                      parameter("fc1.bias", noise({kHidden}, 4)), parameter("fc2.bias", noise({kHidden}, 5))};

  at::Tensor loss(const at::Tensor& x) const {
    const auto at_index = [&](std::size_t i) { return parameters[i].tensor; };
    const at::Tensor h1 = at::addmm(at_index(3), x, at_index(1)).tanh();
    const at::Tensor h2 = at::addmm(at_index(4), h1, at_index(2)).tanh();
    return at::mm(h2, at_index(0)).square().mean();
  }

  std::vector<at::Tensor> copy() const {
    std::vector<at::Tensor> copies;
    for (const auto& one : parameters) copies.push_back(one.tensor.detach().clone());
    return copies;
  }

  void load(const std::vector<at::Tensor>& values) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < values.size(); ++i) parameters[i].tensor.copy_(values[i]);
  }

  void train(DataParallel& parallel, const Rank& rank, int step, int micro_batches) {
    for (int part = 0; part < micro_batches; ++part) {
      const bool sync = part == micro_batches - 1;
      parallel.before_forward(sync);
      const at::Tensor value = loss(noise({kBatch, kIn}, 1000 * step + 10 * rank.environment.rank + part));
      parallel.before_backward(value, sync);
      value.backward();
      parallel.after_backward(sync);
    }
    const at::NoGradGuard no_grad;
    for (auto& one : parameters) one.tensor.sub_(one.tensor.grad(), 0.5);
    parallel.zero_grad();
  }
};

void expect_resumes_bitwise(const Rank& rank, const DdpConfig& config, int micro_batches) {
  Network straight;
  std::vector<std::vector<at::Tensor>> states;
  std::vector<BucketOrder> orders;
  {
    DataParallel parallel(straight.parameters, {}, rank.group, config);
    for (int step = 0; step < kSteps; ++step) {
      straight.train(parallel, rank, step, micro_batches);
      states.push_back(straight.copy());
      orders.push_back(parallel.bucket_order());
    }
  }
  for (int stop = 1; stop < kSteps; ++stop) {
    const auto at_stop = static_cast<std::size_t>(stop - 1);
    EXPECT_GT(orders[at_stop].size(), 1u);
    EXPECT_EQ(orders[at_stop], orders.back());
    Network resumed;
    resumed.load(states[at_stop]);
    // Rank 0 sends the bucket order to the other ranks, so in this test only rank 0 needs it.
    DataParallel parallel(resumed.parameters, {}, rank.group, config,
                          rank.environment.rank == 0 ? orders[at_stop] : BucketOrder{});
    for (int step = stop; step < kSteps; ++step) {
      resumed.train(parallel, rank, step, micro_batches);
      EXPECT_EQ(parallel.bucket_order(), orders.back());
      for (std::size_t i = 0; i < resumed.parameters.size(); ++i) {
        EXPECT_TRUE(resumed.parameters[i].tensor.equal(states[static_cast<std::size_t>(step)][i]))
            << resumed.parameters[i].name << " after step " << step + 1 << ", resumed after step " << stop;
      }
    }
  }
}

DdpConfig small_buckets() {
  DdpConfig config;
  config.first_bucket_mb = 0.02;
  config.bucket_mb = 0.1;
  return config;
}

TEST(DataParallel, ResumesBitwiseAfterAnyStepWithThreeRanks) {
  if (const auto rank = as_rank_of(3)) expect_resumes_bitwise(*rank, small_buckets(), 1);
}

// Shows why checkpoints contain the bucket order. If this test ever fails, Gloo's sums no longer depend on the position of an
// element in its bucket. In that case, the tests of this file do not prove anything.
TEST(DataParallel, AnotherBucketOrderGivesOtherBits) {
  const auto rank = as_rank_of(3);
  if (!rank) return;
  const auto after_one_step = [&](const BucketOrder& order) {
    Network network;
    DataParallel parallel(network.parameters, {}, rank->group, small_buckets(), order);
    network.train(parallel, *rank, 0, 1);
    return network.copy();
  };
  const auto one_way = after_one_step({{0, 4, 2, 3, 1}}), other_way = after_one_step({{0}, {4, 2}, {3, 1}});
  bool equal = true;
  for (std::size_t i = 0; i < one_way.size(); ++i) equal = equal && one_way[i].equal(other_way[i]);
  EXPECT_FALSE(equal);
}

TEST(DataParallel, ResumesBitwiseWithAccumulation) {
  if (const auto rank = as_rank_of(3)) expect_resumes_bitwise(*rank, small_buckets(), 2);
}

TEST(DataParallel, ResumesBitwiseWithoutBucketViews) {
  auto config = small_buckets();
  config.gradient_as_bucket_view = false;
  if (const auto rank = as_rank_of(3)) expect_resumes_bitwise(*rank, config, 1);
}

TEST(DataParallel, ResumesBitwiseWithAStaticGraph) {
  auto config = small_buckets();
  config.static_graph = true;
  if (const auto rank = as_rank_of(3)) expect_resumes_bitwise(*rank, config, 1);
}

TEST(DataParallel, ResumesBitwiseWithAStaticGraphAndAccumulation) {
  auto config = small_buckets();
  config.static_graph = true;
  if (const auto rank = as_rank_of(3)) expect_resumes_bitwise(*rank, config, 3);
}

// With two ranks the result of a sum does not depend on its position in a bucket, so results can be compared bit by bit.
TEST(DataParallel, AStaticGraphAccumulatesNormally) {
  const auto rank = as_rank_of(2);
  if (!rank) return;
  const auto trained = [&](bool static_graph, bool find_unused, int micro_batches) {
    auto config = small_buckets();
    config.static_graph = static_graph;
    config.find_unused_parameters = find_unused;
    Network network;
    DataParallel parallel(network.parameters, {}, rank->group, config);
    for (int step = 0; step < kSteps; ++step) network.train(parallel, *rank, step, micro_batches);
    return network.copy();
  };
  for (const int micro_batches : {1, 2, 4}) {
    const auto plain = trained(false, false, micro_batches);
    for (const bool find_unused : {false, true}) {
      const auto with = trained(true, find_unused, micro_batches);
      for (std::size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(with[i].equal(plain[i])) << "parameter " << i << ", " << micro_batches << " micro-batches";
      }
    }
  }
}

TEST(DataParallel, RanksStayBitwiseEqual) {
  const auto rank = as_rank_of(3);
  if (!rank) return;
  Network network;
  DataParallel parallel(network.parameters, {}, rank->group, small_buckets());
  for (int step = 0; step < kSteps; ++step) network.train(parallel, *rank, step, 1);
  for (const auto& one : network.parameters) {
    std::vector<at::Tensor> rank0{one.tensor.detach().clone()};
    rank->group->broadcast(rank0)->wait();
    EXPECT_TRUE(one.tensor.equal(rank0[0])) << one.name;
  }
}

}  // namespace
}  // namespace ddprun::trainer
