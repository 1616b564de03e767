// Implementation of membership.hpp.
#include "trainer/life/membership.hpp"

#include <chrono>

namespace ddprun::trainer {

void Membership::join(std::optional<std::int64_t> held) {
  const channel::Regroup order = process_.place().next_group(held);
  if (order.rank >= 0) {
    move_to(order);
    process_.inflated().offer_again(process_.environment(), *process_.agent());
  }
  process_.faults().at(FaultPhase::kJoining, held.value_or(0));
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(process_.config().ddp.timeout_s * 1000));
  process_.place().form_group(process_.device(), timeout, process_.options().live_nccl);
  if (!records_.log) records_.log.emplace(process_.status(), process_.environment().rank);
}

// A new rank closes the records of the old one.
void Membership::move_to(const channel::Regroup& order) {
  if (order.rank != process_.environment().rank) records_.close();
  process_.move_to(order);
}

}  // namespace ddprun::trainer
