// A small training state for the tests of checkpoints, with different values for each step. Also compares two states.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>

#include <cstdint>
#include <vector>

#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {

inline Retention newest(std::int64_t count) {
  return {.newest = count};
}

inline constexpr const char* kSampleRun = "aaaaaaaaaaaaaaaa";

inline CheckpointState sample_state(std::int64_t step) {
  CheckpointState state;
  state.step = step;
  state.epoch = 2;
  state.position = 384;
  state.samples = step * 128;
  state.total_steps = 1407;
  state.config_epochs = 3;
  state.world_size = 2;
  state.micro_batch_size = 64;
  state.cpu_class = "AVX2";
  state.torch_version = "2.11.0";
  state.device = "cpu";
  state.precision = "bf16";
  state.seed = (std::uint64_t{1} << 53) - 1;
  state.config_digest = "00ff";
  state.run = kSampleRun;
  state.bucket_order = {{3, 2}, {1, 0}};
  const auto value = static_cast<double>(step);
  state.model = {{"fc1.weight", at::full({4, 3}, value, at::kFloat)},
                 {"fc1.bias", at::arange(4, at::kFloat)},
                 {"bn1.num_batches_tracked", at::scalar_tensor(step, at::kLong)}};
  state.optimizer = {{"fc1.weight.exp_avg", at::full({4, 3}, value / 2, at::kFloat)},
                     {"fc1.weight.step", at::scalar_tensor(value, at::kFloat)}};
  return state;
}

inline bool same_tensors(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size()) return false;
  for (const NamedTensor& one : a) {
    bool found = false;
    for (const NamedTensor& other : b) {
      found = found || (one.name == other.name && one.tensor.scalar_type() == other.tensor.scalar_type() &&
                        one.tensor.sizes() == other.tensor.sizes() && at::equal(one.tensor, other.tensor));
    }
    if (!found) return false;
  }
  return true;
}

inline bool same_state(const CheckpointState& a, const CheckpointState& b) {
  return a.step == b.step && a.epoch == b.epoch && a.position == b.position && a.samples == b.samples &&
         a.finished == b.finished && a.total_steps == b.total_steps && a.config_epochs == b.config_epochs &&
         a.config_max_steps == b.config_max_steps && a.world_size == b.world_size && a.micro_batch_size == b.micro_batch_size &&
         a.intra_op_threads == b.intra_op_threads && a.cpu_class == b.cpu_class && a.torch_version == b.torch_version &&
         a.device == b.device && a.precision == b.precision && a.seed == b.seed && a.config_digest == b.config_digest &&
         a.run == b.run && a.evaluation == b.evaluation && a.bucket_order == b.bucket_order && same_tensors(a.model, b.model) &&
         same_tensors(a.optimizer, b.optimizer) && same_tensors(a.average, b.average) && a.values == b.values;
}

}  // namespace ddprun::trainer
