#include "trainer/loop/evaluate.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "trainer/data/sampler.hpp"
#include "trainer/models/precision.hpp"

namespace ddprun::trainer {

Evaluation evaluate(Model& model, const Source& test, const TrainConfig& config, c10::Device device, Upload& upload,
                    const Peers& peers, const std::function<void()>& before_sum) {
  const at::NoGradGuard no_gradients;
  model.eval();
  const at::TensorOptions there(device);
  const at::Tensor loss = at::zeros({}, there.dtype(at::kDouble));
  const at::Tensor correct = at::zeros({}, there.dtype(at::kLong));
  const Block block = evaluation_block(test.size(), peers.world(), peers.rank());
  for (std::int64_t first = block.first; first < block.last; first += config.eval_batch_size) {
    const std::int64_t last = std::min(first + config.eval_batch_size, block.last);
    std::vector<std::int64_t> samples(static_cast<std::size_t>(last - first));
    std::iota(samples.begin(), samples.end(), first);
    const Batch batch = upload.take(test.make(samples, {}));
    const at::Tensor& labels = batch.tensors.at(1);
    const at::Tensor logits = forward(model, batch.tensors.at(0), config);
    const at::Tensor losses = at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::None);
    // Sums in double, so that the result does not depend on how the set was cut.
    loss.add_(losses.sum(at::kDouble));
    correct.add_(logits.argmax(1).eq(labels).sum());
  }
  std::array<double, 3> sums{loss.item<double>(), static_cast<double>(correct.item<std::int64_t>()),
                             static_cast<double>(std::max<std::int64_t>(0, block.last - block.first))};
  model.train();
  if (before_sum) before_sum();
  peers.sum(sums);
  return {.loss = sums[0] / sums[2], .accuracy = sums[1] / sums[2], .samples = static_cast<std::int64_t>(sums[2])};
}

}  // namespace ddprun::trainer
