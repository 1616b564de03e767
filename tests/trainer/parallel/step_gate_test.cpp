// The gate in the order of a step, between real ranks over Gloo: what one rank holds back reaches no other's weights. The CPU
// runs each call at once, so a device that runs behind is played by a gate that is shut at the worst moments.
#include "trainer/parallel/step_gate.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "tests/trainer/parallel/ranks.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {
namespace {

// Exchanges by `inner`, or with nobody, and does something when an exchange is over.
class ObservedGroup final : public c10d::ProcessGroup {
 public:
  ObservedGroup(c10::intrusive_ptr<c10d::ProcessGroup> inner, std::function<void(at::Tensor&)> behind)
      : c10d::ProcessGroup(0, 1), inner_(std::move(inner)), behind_(std::move(behind)) {}

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    if (inner_) inner_->allreduce(tensors, options)->wait();
    behind_(tensors.front());
    return c10::make_intrusive<Done>();
  }

 private:
  struct Done final : c10d::Work {
    bool wait(std::chrono::milliseconds) override { return true; }
  };

  c10::intrusive_ptr<c10d::ProcessGroup> inner_;
  std::function<void(at::Tensor&)> behind_;
};

// One weight, whose gradient is the weight itself: a sum with a rank that is a step behind differs.
struct Training {
  explicit Training(c10d::ProcessGroup* ranks) : group(ranks) {
    OptimizerConfig config;
    config.type = OptimizerConfig::Type::kSgd;
    optimizer = make_optimizer(config, {{"w", weight}});
    optimizer->gate(gate.verdict());
  }

  void step(c10d::ProcessGroup* of_verdicts) {
    weight.mutable_grad() = weight.detach().clone();
    if (group != nullptr) {
      std::vector<at::Tensor> gradient{weight.mutable_grad()};
      group->allreduce(gradient)->wait();
    }
    gate.judge(of_verdicts);
    optimizer->step(0.125);
    gate.count();
  }

  c10d::ProcessGroup* group;
  at::Tensor weight = at::ones({1}).requires_grad_();
  std::unique_ptr<Optimizer> optimizer;
  StepGate gate{c10::kCPU};
};

float after(int steps) {
  float weight = 1;
  for (int i = 0; i < steps; ++i) weight -= 0.125F * (weight + weight);
  return weight;
}

// Six steps are queued; rank 1's gate is shut `where` in the third.
enum class Where { kBehindTheVerdict, kBeforeIt };
void lose_a_peer(Rank& rank, Where where, int done_by_0, int done_by_1) {
  Training training(rank.group.get());
  int step = 0;
  ObservedGroup verdicts(rank.group, [&](at::Tensor&) {
    if (where == Where::kBehindTheVerdict && rank.environment.rank == 1 && step == 3) training.gate.shut();
  });
  while (++step <= 6) {
    if (where == Where::kBeforeIt && rank.environment.rank == 1 && step == 3) training.gate.shut();
    training.step(&verdicts);
  }
  const int done = rank.environment.rank == 0 ? done_by_0 : done_by_1;
  EXPECT_EQ(training.gate.steps_done(), done);
  EXPECT_EQ(training.weight.item<float>(), after(done));
}

TEST(StepGate, WhoHoldsAStepBackThatOthersHadIsOneBehindAndNoMore) {
  const auto rank = as_rank_of(2);
  if (rank) lose_a_peer(*rank, Where::kBehindTheVerdict, 3, 2);
}

TEST(StepGate, WhatOneHoldsBackBeforeItsVerdictAllHoldBack) {
  const auto rank = as_rank_of(2);
  if (rank) lose_a_peer(*rank, Where::kBeforeIt, 2, 2);
}

// Kernels of an aborted communicator leave what was in the memory.
TEST(StepGate, AVerdictThatWasCutOffIsNone) {
  for (const float left :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 0.0F, 0.5F, 7.0F}) {
    Training training(nullptr);
    ObservedGroup verdicts({}, [&](at::Tensor& verdict) {
      training.gate.shut();
      verdict.fill_(left);
    });
    training.step(&verdicts);
    EXPECT_EQ(training.gate.verdict().item<float>(), 1.0F) << left;
    EXPECT_EQ(training.weight.item<float>(), 1.0F) << left;
    EXPECT_EQ(training.gate.steps_done(), 0) << left;
  }
}

TEST(StepGate, IsShutByAnotherThreadAndOpenedForTheNextGroup) {
  Training training(nullptr);
  training.step(nullptr);
  std::thread([&] { training.gate.shut(); }).join();
  training.step(nullptr);
  training.step(nullptr);
  EXPECT_EQ(training.gate.steps_done(), 1);
  training.gate.open();
  EXPECT_EQ(training.gate.steps_done(), 0);
  training.step(nullptr);
  EXPECT_EQ(training.gate.steps_done(), 1);
  EXPECT_EQ(training.weight.item<float>(), 0.875F * 0.875F);
}

// A device's memory is the module's to give and to take back, and the host's side of it is what shut() writes.
class MappingModule final : public CudaModule {
 public:
  int device_count() noexcept override { return 1; }
  std::string device_name(int) override { return ""; }
  std::string device_uuid(int) override { return ""; }
  void set_device(int) override {}
  void synchronize(int) override {}
  GpuMemory memory(int) override { return {}; }
  bool pin(int, void*, std::size_t) noexcept override { return false; }
  void unpin(void*) noexcept override {}
  MappedMemory map(int, std::size_t bytes) override {
    EXPECT_EQ(bytes, sizeof(float));
    ++mapped;
    return {.host = &flag, .on_device = &flag};
  }
  void unmap(const MappedMemory& memory) noexcept override { mapped -= memory.host == &flag ? 1 : 0; }
  void empty_cache() override {}
  c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&, int, int, int,
                                              std::chrono::milliseconds) override {
    return {};
  }

  float flag = 0;
  int mapped = 0;
};

TEST(StepGate, WritesAndGivesBackTheMemoryThatTheModuleMaps) {
  MappingModule module;
  {
    StepGate gate(c10::kCPU, &module);
    EXPECT_EQ(module.mapped, 1);
    gate.judge(nullptr);
    EXPECT_EQ(gate.verdict().item<float>(), 0.0F);
    gate.shut();
    EXPECT_EQ(module.flag, 1.0F);
    gate.judge(nullptr);
    EXPECT_EQ(gate.verdict().item<float>(), 1.0F);
  }
  EXPECT_EQ(module.mapped, 0);
}

}  // namespace
}  // namespace ddprun::trainer
