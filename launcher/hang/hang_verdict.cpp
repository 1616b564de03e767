#include "launcher/hang/hang_verdict.hpp"

#include <algorithm>
#include <tuple>

#include "common/base/check.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {
namespace {

using channel::Phase;
using channel::Position;
using channel::Stage;

// Returns a key that sorts positions by progress: a smaller key is earlier in the run. After `step` finished steps, a run first
// compares the states of its ranks, then evaluates, saves and continues.
auto order_of(const Position& at) {
  int phase = 0;
  switch (at.phase) {
    case Phase::kStarting:
      return std::tuple(-2, std::int64_t{0}, 0, 0);
    case Phase::kJoining:
      return std::tuple(-1, std::int64_t{0}, 0, 0);
    case Phase::kEvaluating:
      phase = 0;
      break;
    case Phase::kSaving:
      phase = 1;
      break;
    case Phase::kRunning:
      phase = at.stage == Stage::kComparing ? -1 : 2;
      break;
    case Phase::kDone:
      phase = 3;
      break;
  }
  const bool staged = at.phase == Phase::kRunning || at.phase == Phase::kEvaluating;
  return std::tuple(0, at.step, phase, staged ? static_cast<int>(at.stage) : 0);
}

// Describes what a rank at this position waits for. The text is empty for a stage in which a rank does not wait for other
// ranks.
std::string awaited_in(const Position& at) {
  switch (at.phase) {
    case Phase::kJoining:
      return "for all ranks to join";
    case Phase::kEvaluating:
      return at.stage == Stage::kLoss ? "in the sum of the evaluation after step " + format_count(at.step) : "";
    case Phase::kDone:
      return "for all ranks to end";
    case Phase::kStarting:
    case Phase::kSaving:
      return {};
    case Phase::kRunning:
      break;
  }
  if (at.stage == Stage::kMeeting) return "for all ranks at the end of the run";
  const bool waits = at.stage == Stage::kBatchNorm || at.stage == Stage::kBackward || at.stage == Stage::kLoss ||
                     // The rank may wait for a rank that is behind.
                     at.stage == Stage::kComparing || at.stage == Stage::kSomewhere;
  return waits ? "in " + describe(at) : "";
}

std::vector<int> ranks_where(std::span<const HangObservation> observations, auto wanted) {
  std::vector<int> ranks;
  for (const HangObservation& observation : observations)
    if (wanted(observation)) ranks.push_back(observation.rank);
  return ranks;
}

// Names the ranks that answered with a position in which they wait.
std::string waiting_ranks_text(std::span<const HangObservation> observations, const std::vector<int>& culprits) {
  for (const HangObservation& observation : observations) {
    const bool culprit = std::find(culprits.begin(), culprits.end(), observation.rank) != culprits.end();
    if (culprit || !observation.position) continue;
    const std::string where = awaited_in(*observation.position);
    if (where.empty()) continue;
    const auto same = ranks_where(observations, [&](const HangObservation& other) {
      return other.position && order_of(*other.position) == order_of(*observation.position) &&
             std::find(culprits.begin(), culprits.end(), other.rank) == culprits.end();
    });
    return "; " + ranks_text(same) + (same.size() == 1 ? " waits " : " wait ") + where;
  }
  return {};
}

}  // namespace

std::string describe(const Position& at) {
  const std::string next = " of step " + format_count(at.step + 1);
  const std::string after = " after step " + format_count(at.step);
  switch (at.phase) {
    case Phase::kStarting:
      return "the start";
    case Phase::kJoining:
      return "the setup phase (process group, data and checkpoint)";
    case Phase::kSaving:
      return "the checkpoint" + after;
    case Phase::kEvaluating:
      return "the evaluation" + after;
    case Phase::kDone:
      return "the end of the run" + after;
    case Phase::kRunning:
      break;
  }
  switch (at.stage) {
    case Stage::kLoading:
      return "the batch" + next;
    case Stage::kForward:
      return "the forward or backward pass" + next;
    case Stage::kBatchNorm:
      return "a batch norm over all ranks" + next;
    case Stage::kBackward:
      return "the all-reduce of the gradients" + next;
    case Stage::kLoss:
      return "the sum of the loss" + next;
    case Stage::kOptimizer:
      return "the optimizer" + next;
    case Stage::kMeeting:
      return "the end of the run" + after;
    case Stage::kComparing:
      return "the comparison of the states" + after;
    case Stage::kSomewhere:
      break;
  }
  return "step " + format_count(at.step + 1);
}

HangVerdict judge_hang(std::span<const HangObservation> observations) {
  using Certainty = HangVerdict::Certainty;
  check(!observations.empty(), "expected at least one observed worker when a hang is diagnosed, found none");
  auto culprits =
      ranks_where(observations, [](const HangObservation& l) { return l.process_state == 'T' || l.process_state == 't'; });
  if (!culprits.empty()) {
    const std::string waiting_text = waiting_ranks_text(observations, culprits);
    return {std::move(culprits), Certainty::kSure, "is stopped (SIGSTOP or a debugger)" + waiting_text};
  }
  culprits = ranks_where(observations, [](const HangObservation& l) { return l.queried && !l.position; });
  if (!culprits.empty()) {
    const std::string waiting_text = waiting_ranks_text(observations, culprits);
    return {std::move(culprits), Certainty::kSure, "does not answer its agent" + waiting_text};
  }
  if (!observations.front().position) {
    return {{observations.front().rank},
            Certainty::kGuess,
            "reports nothing, like all other workers on this node; the evidence shows the state of each worker"};
  }

  for (const HangObservation& observation : observations)
    check(observation.position.has_value(), "a hang is diagnosed, but the position of a worker is unknown");
  const auto earlier = [](const HangObservation& a, const HangObservation& b) {
    return order_of(*a.position) < order_of(*b.position);
  };
  const auto [first, last] = std::minmax_element(observations.begin(), observations.end(), earlier);
  const auto first_place = order_of(*first->position);
  culprits = ranks_where(observations, [&](const HangObservation& l) { return order_of(*l.position) == first_place; });
  const std::string place = describe(*first->position);
  if (order_of(*first->position) != order_of(*last->position)) {
    return {culprits, Certainty::kSure, "is in " + place + waiting_ranks_text(observations, culprits)};
  }
  // All ranks are at the same position here. If ranks do not wait for each other at this position, each of them hangs
  // independently.
  const bool waiting = !awaited_in(*first->position).empty();
  return {{first_of(culprits, "no rank is at the first position")},
          waiting ? Certainty::kGuess : Certainty::kSure,
          "is in " + place + (observations.size() > 1 ? ", like all other ranks on this node" : "")};
}

}  // namespace ddprun
