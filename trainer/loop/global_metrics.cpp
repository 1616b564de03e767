#include "trainer/loop/global_metrics.hpp"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/error.hpp"
#include "trainer/cost/host_peak.hpp"
#include "trainer/loop/bad_data.hpp"
#include "trainer/parallel/device.hpp"

namespace ddprun::trainer {
namespace {

// Returns the peak memory of this rank in bytes. On a GPU, this is the memory of the tensors. On a CPU, it is the memory of
// the process.
double peak_memory(const c10::Device& device) {
  return static_cast<double>(device.is_cuda() ? cuda_module()->memory(device.index()).peak_allocated_bytes
                                              : recent_host_peak_memory());
}

}  // namespace

[[noreturn]] void diverged(std::int64_t finished, int rank, const std::string& data) {
  throw DivergedError("the loss of step " + std::to_string(finished + 1) + " is NaN or infinite on rank " +
                      std::to_string(rank) +
                      (data.empty() ? "; try a lower optimizer.lr, a larger schedule.warmup_steps, or clip_grad_norm"
                                    : ", whose data has " + data));
}

double part_of_loss(const std::vector<at::Tensor>& losses, const RankBatch& share) {
  // In this step, this rank has only a stand-in (a sample of weight 0), so it has no loss.
  if (losses.empty()) return 0;
  const at::Tensor read = at::stack(losses).to(at::kCPU, at::kDouble);
  const auto* const values = read.const_data_ptr<double>();
  double sum = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) sum += values[i] * share.micro_batches[i].weight / share.global_weight;
  return sum;
}

GlobalMetrics global_metrics(double own, bool requests_save_now, const RankBatch& share, const Workspace& work,
                             OnNonFinite on_non_finite) {
  const Peers& peers = work.peers;
  std::vector<double> sums(static_cast<std::size_t>(peers.world()) + 2, 0.0);
  sums.back() = requests_save_now ? 1.0 : 0.0;
  const auto here = static_cast<std::size_t>(peers.rank()) + 1;
  const double peak = std::max(1.0, peak_memory(work.device));
  // A negative peak memory reports that the rank's loss is not finite.
  sums[here] = std::isfinite(own) ? peak : -peak;
  sums[0] = std::isfinite(own) ? own : 0.0;
  peers.sum(sums);
  double largest = 0;
  for (int rank = 0; rank < peers.world(); ++rank) {
    const double peer_peak = sums[static_cast<std::size_t>(rank) + 1];
    largest = std::max(largest, std::abs(peer_peak));
    if (peer_peak > 0) continue;
    if (on_non_finite == OnNonFinite::kEndRun) {
      diverged(share.step, rank, rank == peers.rank() ? not_finite_in(share, *work.data.train) : "");
    }
    sums[0] = std::numeric_limits<double>::quiet_NaN();
  }
  return {.loss = sums[0], .save_is_due = sums.back() > 0, .peak_memory = std::abs(sums[1]), .largest_peak_memory = largest};
}

}  // namespace ddprun::trainer
