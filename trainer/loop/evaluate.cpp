#include "trainer/loop/evaluate.hpp"

#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "trainer/data/loader.hpp"
#include "trainer/data/sampler.hpp"

namespace ddprun::trainer {

Evaluation evaluate(Model& model, const Dataset& test, Normalization normalization, std::int64_t batch_size, c10::Device device,
                    const Peers& peers, const std::function<void()>& before_sum) {
  const at::NoGradGuard no_gradients;
  model.eval();
  std::array<double, 3> sums{};  // loss, correct answers, samples
  const Block block = evaluation_block(test.size(), peers.world(), peers.rank());
  for (std::int64_t first = block.first; first < block.last; first += batch_size) {
    const std::int64_t last = std::min(first + batch_size, block.last);
    const MicroBatch batch = evaluation_batch(test, normalization, first, last);
    const at::Tensor labels = batch.labels.to(device);
    const at::Tensor logits = model.forward(batch.images.to(device));
    const at::Tensor losses = at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::None);
    // Sums in double, so that the result does not depend on how the set was cut.
    sums[0] += losses.sum(at::kDouble).item<double>();
    sums[1] += static_cast<double>(logits.argmax(1).eq(labels).sum().item<std::int64_t>());
    sums[2] += static_cast<double>(last - first);
  }
  model.train();
  if (before_sum) before_sum();
  peers.sum(sums);
  return {.loss = sums[0] / sums[2], .accuracy = sums[1] / sums[2], .samples = static_cast<std::int64_t>(sums[2])};
}

}  // namespace ddprun::trainer
