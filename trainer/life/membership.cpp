// Implementation of membership.hpp.
#include "trainer/life/membership.hpp"

#include <chrono>

#include "trainer/parallel/process_group.hpp"

namespace ddprun::trainer {
namespace {

// One that ends does so at once; a standby is there before this time is over.
constexpr std::chrono::milliseconds kPatienceWithCollectives{100};

}  // namespace

// A job of one has no peers and needs neither store nor group.
void Membership::join(std::optional<std::int64_t> held) {
  process_.status().enter(channel::Phase::kJoining);
  const WorkerEnvironment& environment = process_.environment();
  Recovery* const recovery = process_.recovery();
  GroupBreaker* const breaker = recovery ? &recovery->breaker() : nullptr;
  generation_ = environment.restart_count;
  if (recovery) {
    const channel::Regroup order = recovery->begin_group(held.value_or(-1));
    generation_ = order.generation;
    move_to(order);
    if (order.rank >= 0) process_.inflated().offer_again(environment, *process_.agent());
  }
  const int world = environment.world_size;
  process_.faults().at(FaultPhase::kJoining, held.value_or(0));
  if (world > 1) {
    const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(process_.config().ddp.timeout_s * 1000));
    store_ = make_store(environment, process_.agent(), timeout, generation_);
    if (process_.agent()) meet_in_store(environment, store_, generation_, timeout);
    group_ =
        make_process_group(environment, store_, process_.device(), generation_, timeout, breaker, process_.options().live_nccl);
  }
  peers_.emplace(group_, environment.rank, world, process_.device(), breaker);
  if (!records_.log) records_.log.emplace(process_.status(), environment.rank);
  process_.stopping().on_group(store_, environment.rank, world, environment.restart_count);
}

// What belongs to the old rank goes; no rank in the order: the place is that which this process was started for.
void Membership::move_to(const channel::Regroup& order) {
  if (order.rank < 0) return;
  if (order.rank != process_.environment().rank) records_.close();
  process_.move_to(order);
}

// A checkpoint that is being written is none of the group's business, so the records stay.
void Membership::leave() {
  peers_.reset();
  if (group_ && !process_.recovery()->breaker().collectives().all_ended(kPatienceWithCollectives)) {
    // Gloo's thread waits in a collective that was cut off, maybe for half an hour, and the group's end would wait for it.
    [[maybe_unused]] c10d::ProcessGroup* const left_behind = group_.release();
    groups_left_behind_ = true;
  }
  group_.reset();
  store_.reset();
}

// NCCL's communicators wait for each other; a group that just goes leaves that to PyTorch's complaint. Gloo needs nothing.
void Membership::shut_down() {
  if (group_) group_->shutdown();
}

}  // namespace ddprun::trainer
