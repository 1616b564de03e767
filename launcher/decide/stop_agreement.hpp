// How the ranks of a round agree on the step at which all of them stop and save. Each rank answers Stop{save} with the number
// of steps that it has started, and starts no further one. Every rank can reach the largest of these numbers. Pure;
// agent_state.cpp feeds it and sends the agreed step to the workers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace ddprun {

class StopAgreement {
 public:
  // `ranks` got Stop{save} and are still working.
  explicit StopAgreement(std::set<int> ranks) : awaited_(std::move(ranks)) {}

  // The rank answered. Repeated answers change nothing.
  void ready(int rank, std::int64_t started) {
    if (awaited_.erase(rank) > 0) started_.emplace(rank, started);
  }
  // The rank has finished the job or is about to, so it need not answer.
  void left(int rank) { awaited_.erase(rank); }

  // The agreed step, once every rank has answered or left; it never changes afterwards. nullopt also if no rank has answered.
  std::optional<std::int64_t> step() const {
    if (!awaited_.empty() || started_.empty()) return std::nullopt;
    std::int64_t largest = 0;
    for (const auto& [rank, started] : started_) largest = std::max(largest, started);
    return largest;
  }

 private:
  std::set<int> awaited_;
  std::map<int, std::int64_t> started_;
};

}  // namespace ddprun
