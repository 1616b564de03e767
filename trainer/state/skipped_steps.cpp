// Implementation of skipped_steps.hpp. It defines the names under which StateValues stores the counts.
#include "trainer/state/skipped_steps.hpp"

namespace ddprun::trainer {
namespace {

constexpr const char* kTotal = "skipped_steps.total";
constexpr const char* kInARow = "skipped_steps.in_a_row";
constexpr const char* kWithoutChange = "skipped_steps.without_change";

}  // namespace

void init_skipped_steps(StateValues& values, const TrainConfig& config) {
  const bool skips = config.not_finite == TrainConfig::NotFinite::kSkip;
  if (skips) values[kInARow] = 0;
  if (skips || config.precision == TrainConfig::Precision::kFp16) values[kTotal] = values[kWithoutChange] = 0;
}

void count_step(StateValues& values, bool finite, bool by_scaler) {
  if (const auto total = values.find(kTotal); total != values.end() && !finite) ++total->second;
  if (const auto without = values.find(kWithoutChange); without != values.end()) {
    without->second = finite ? 0 : without->second + 1;
  }
  const auto in_a_row = values.find(kInARow);
  if (in_a_row == values.end()) return;
  if (finite) {
    in_a_row->second = 0;
  } else if (!by_scaler) {
    ++in_a_row->second;
  }
}

std::optional<std::int64_t> skipped_steps(const StateValues& values) {
  const auto total = values.find(kTotal);
  if (total == values.end()) return std::nullopt;
  return static_cast<std::int64_t>(total->second);
}

std::int64_t skipped_in_a_row(const StateValues& values) {
  const auto in_a_row = values.find(kInARow);
  return in_a_row == values.end() ? 0 : static_cast<std::int64_t>(in_a_row->second);
}

std::int64_t steps_without_change(const StateValues& values) {
  const auto without = values.find(kWithoutChange);
  return without == values.end() ? 0 : static_cast<std::int64_t>(without->second);
}

bool skips_steps(const StateValues& values) {
  return values.contains(kInARow);
}

}  // namespace ddprun::trainer
