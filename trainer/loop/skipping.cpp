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
  throw DivergedError("the loss or a gradient was NaN or infinite in " + std::to_string(in_a_row) +
                      " consecutive steps, up to step " + std::to_string(state.step) +
                      (data.empty() ? "; try a lower optimizer.lr, a larger schedule.warmup_steps, or clip_grad_norm"
                                    : ", whose data has " + data));
}

// A run with fewer steps than this may skip all of them for a normal reason: it ends before a high initial loss scale has
// fallen far enough.
constexpr std::int64_t kMaxUnchangedAtEnd = 100;

[[noreturn]] void throw_gradients_stay_infinite(const TrainingState& state, double scale) {
  char scale_text[32];
  std::snprintf(scale_text, sizeof scale_text, "%g", scale);
  throw DivergedError("a gradient of step " + std::to_string(state.step + 1) +
                      " is NaN or infinite, although the loss scale of fp16 has fallen to " + scale_text +
                      ", so no scale makes the gradients finite. Check the loss for an operation with an infinite gradient, "
                      "such as sqrt or norm at 0, scale the data, or use another \"precision\"");
}

}  // namespace

at::Tensor seed_of_backward(const at::Tensor& loss, const TrainingState& state) {
  return skips_steps(state.values) ? loss.detach().mul(0).add_(1) : at::Tensor();
}

// A step with non-finite gradients lowers the loss scale only if the scale may be the cause: with fp16 and a scale of 1 or more
// (is_scaler_overflow()).
bool update_or_skip(TrainingState& state, const Workspace& work, bool finite, double lr) {
  const bool by_scaler = is_scaler_overflow(state.values, work.config);
  if (!finite && !by_scaler && !skips_steps(state.values))
    throw_gradients_stay_infinite(state, loss_scale(state.values, work.config));
  if (finite) work.strategy->update(state, lr);
  if (finite || by_scaler) update_loss_scale(state.values, work.config, finite);
  count_step(state.values, finite, by_scaler);
  if (finite || !skips_steps(state.values)) return false;
  restore_buffers(state);
  return !by_scaler;
}

// A bad sample can cause a skipped step in every epoch. To limit the number of warnings, only the 1st, 2nd, 4th, 8th ...
// skipped step of a run is examined and reported.
void report_skipped_step(const TrainingState& state, Workspace& work, const RankBatch& share) {
  const std::int64_t in_a_row = skipped_in_a_row(state.values);
  const bool too_many = in_a_row > work.config.max_skipped_steps;
  const auto total = static_cast<std::uint64_t>(skipped_steps(state.values).value_or(0));
  if (!too_many && !std::has_single_bit(total)) return;
  const std::string data = not_finite_in(share, *work.data.train);
  if (too_many) give_up(state, in_a_row, data);
  if (work.peers.rank() != 0 && data.empty()) return;
  work.log.warn(channel::ErrorKind::kDiverged,
                "step " + std::to_string(state.step) + " does not change the weights: a loss or a gradient is NaN or infinite" +
                    (data.empty() ? "" : ", and its data has " + data) + "; steps skipped so far: " + std::to_string(total));
}

void require_change(const TrainingState& state, Workspace& work) {
  const std::int64_t last = steps_without_change(state.values);
  const std::string why = ": their loss or a gradient was NaN or infinite";
  if (last >= kMaxUnchangedAtEnd) {
    throw DivergedError("the last " + std::to_string(last) + " steps of the run, up to step " + std::to_string(state.step) +
                        ", did not change the weights" + why +
                        "; try a lower optimizer.lr, a larger schedule.warmup_steps, or clip_grad_norm");
  }
  if (last > 0 && last == state.step && work.peers.rank() == 0) {
    work.log.warn(channel::ErrorKind::kDiverged, "the weights are still the initial weights: none of the " +
                                                     std::to_string(last) + " steps changed them" + why);
  }
}

}  // namespace ddprun::trainer
