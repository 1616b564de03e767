// Implementation of skipping.hpp.
#include "trainer/loop/skipping.hpp"

#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>

#include "common/base/error.hpp"
#include "trainer/loop/bad_data.hpp"
#include "trainer/state/loss_scale.hpp"
#include "trainer/state/skipped_steps.hpp"

namespace ddprun::trainer {
namespace {

[[noreturn]] void give_up(const TrainingState& state, std::int64_t in_a_row, const std::string& data) {
  throw DivergedError(
      "the loss or a gradient is NaN or infinite in " + std::to_string(in_a_row) +
      " steps one after the other, the last of which is step " + std::to_string(state.step) +
      (data.empty() ? "; a lower learning rate, warm-up or clip_grad_norm may help" : ", whose data has " + data));
}

// The last steps of a run may be skipped until a high initial loss scale has fallen, but hardly this many.
constexpr std::int64_t kMostAtTheEnd = 100;

[[noreturn]] void no_scale_helps(const TrainingState& state, double scale) {
  char scale_text[32];
  std::snprintf(scale_text, sizeof scale_text, "%g", scale);
  throw DivergedError("a gradient of step " + std::to_string(state.step + 1) +
                      " is NaN or infinite, although the loss scale of fp16 has fallen to " + scale_text +
                      ", so no scale makes the gradients finite. Check the loss for an operation with an infinite gradient, "
                      "such as sqrt or norm "
                      "at 0, scale the data, or use another \"precision\"");
}

}  // namespace

at::Tensor seed_of_backward(const at::Tensor& loss, const TrainingState& state) {
  return skips_steps(state.values) ? loss.detach().mul(0).add_(1) : at::Tensor();
}

// A step lowers the scale only if the scale may be the cause, and never below that limit (is_of_scaler()).
bool update_or_skip(TrainingState& state, const Workspace& work, bool finite, double lr) {
  const bool by_scaler = is_of_scaler(state.values, work.config);
  if (!finite && !by_scaler && !skips_steps(state.values)) no_scale_helps(state, loss_scale(state.values, work.config));
  if (finite) work.strategy->update(state, lr);
  if (finite || by_scaler) heed_gradients(state.values, work.config, finite);
  count_step(state.values, finite, by_scaler);
  if (finite || !skips_steps(state.values)) return false;
  put_buffers_back(state);
  return !by_scaler;
}

// A run may skip a step in each epoch forever. So only its 1st, 2nd, 4th, 8th... skipped step is examined and reported.
void tell_skipped(const TrainingState& state, Workspace& work, const Share& share) {
  const std::int64_t in_a_row = skipped_in_a_row(state.values);
  const bool too_many = in_a_row > work.config.max_skipped_steps;
  const auto total = static_cast<std::uint64_t>(skipped_steps(state.values).value_or(0));
  if (!too_many && !std::has_single_bit(total)) return;
  const std::string data = not_finite_in(share, *work.data.train);
  if (too_many) give_up(state, in_a_row, data);
  if (work.peers.rank() != 0 && data.empty()) return;
  work.log.warn(channel::ErrorKind::kDiverged,
                "step " + std::to_string(state.step) + " changes nothing, since a loss or a gradient is not finite" +
                    (data.empty() ? "" : ": its data has " + data) + "; steps skipped so far: " + std::to_string(total));
}

void require_change(const TrainingState& state, Workspace& work) {
  const std::int64_t last = steps_without_change(state.values);
  const std::string why = ": their loss or a gradient was NaN or infinite";
  if (last >= kMostAtTheEnd) {
    throw DivergedError("the last " + std::to_string(last) + " steps of the run, up to step " + std::to_string(state.step) +
                        ", changed nothing" + why + "; a lower learning rate, warm-up or clip_grad_norm may help");
  }
  if (last > 0 && last == state.step && work.peers.rank() == 0) {
    work.log.warn(channel::ErrorKind::kDiverged, "the weights are those that the run began with, since none of its " +
                                                     std::to_string(last) + " steps changed anything" + why);
  }
}

}  // namespace ddprun::trainer
