// The wait for enough nodes before a round: first for min_nodes, then for more until the last call ends. The coordinator checks
// it whenever a node may have become ready. This class owns when the call ends, and when the wait times out. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

class Gathering {
 public:
  explicit Gathering(const CoordinatorSettings& settings)
      : min_nodes_(settings.min_nodes),
        max_nodes_(settings.max_nodes),
        last_call_(settings.last_call),
        join_timeout_(settings.join_timeout) {}

  // `last` is the previous round. In the first round, the call begins when min_nodes have joined.
  void begin(const Config& last, milliseconds call, Time now);
  // True if the round should be formed now with the `ready` nodes. `may_be_all`: this coordinator inherited the round `last`,
  // and knows of no further node that is about to report.
  bool enough(std::int64_t ready, const Config& last, bool may_be_all, Time now, Outbox& outbox);
  bool in_vain(Time now) const { return join_ends_ <= now; }
  Time next_deadline(Time now) const;
  // The message for a timeout.
  std::string why(std::int64_t ready) const;

 private:
  std::int32_t min_nodes_;
  std::int32_t max_nodes_;
  milliseconds last_call_;
  milliseconds join_timeout_;
  std::optional<Time> call_ends_;
  Time join_ends_{};
};

}  // namespace ddprun::rendezvous
