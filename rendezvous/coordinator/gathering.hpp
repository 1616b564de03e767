// The wait for enough nodes before a round: first for as many as are needed at least, then for more until the call ends. The
// coordinator asks whenever who is ready may have changed. Owns when the call ends, and when nobody waits any longer. Pure.
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

  // `last`: the round before; the first round's call begins once there are enough nodes.
  void begin(const Config& last, milliseconds call, Time now);
  // True: the round is to be formed now. `may_be_all`: this coordinator inherited `last`, and nobody is
  // about to say that it is here.
  bool enough(std::int64_t ready, const Config& last, bool may_be_all, Time now, Outbox& outbox);
  bool in_vain(Time now) const { return join_ends_ <= now; }
  Time next_deadline(Time now) const;
  // For people, when it was in vain.
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
