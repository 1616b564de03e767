// Waits for enough nodes before a round starts. The coordinator first waits for min_nodes nodes, and then a limited time for
// more nodes (the last call, as in torchrun). This class decides when the last call ends, and when the whole wait times out.
// The coordinator calls enough() whenever another node may have become ready. The code is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"

namespace ddprun::rendezvous {

class JoinBarrier {
 public:
  explicit JoinBarrier(const CoordinatorSettings& settings) : settings_(settings) {}

  // Starts a wait. `last` is the previous round, if there was a previous round. In that case the last call ends when `call`
  // has passed. Before the first round, the last call starts when min_nodes nodes have joined.
  void begin(const Config& last, milliseconds call, Time now);
  // Returns true if a round should start now with the `ready` nodes. `may_be_all` is true if this coordinator was elected, and
  // all joined nodes have answered their Welcome.
  bool enough(std::int64_t ready, const Config& last, bool may_be_all, Time now, Outbox& outbox);
  bool timed_out_by(Time now) const { return join_ends_ <= now; }
  Time next_deadline(Time now) const;
  // Describes why the wait for nodes timed out, for messages.
  std::string why(std::int64_t ready) const;

 private:
  const CoordinatorSettings& settings_;
  std::optional<Time> call_ends_;
  Time join_ends_{};
};

}  // namespace ddprun::rendezvous
