// Implementation of recovery.hpp. Orders arrive on the channel's thread; the training thread makes and leaves groups.
#include "trainer/job/recovery.hpp"

#include <chrono>
#include <stdexcept>
#include <variant>

#include "common/base/error.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {
namespace {

// The agent sees a worker's end within a millisecond, but on an overloaded machine it may not run for seconds. No order comes
// if no worker has ended, for example if only a connection broke.
constexpr std::chrono::seconds kTimeToBeOrdered{30};

bool is_our_own(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return true;  // divergence, or a checkpoint that cannot be saved: these errors do not come from a lost peer
  } catch (...) {
    const Failure failure = classify(error);
    return failure.kind == channel::ErrorKind::kOutOfMemory || failure.others_suspect || failure.of_data;
  }
}

}  // namespace

void Recovery::on_message(const channel::FromAgent& message) {
  const std::lock_guard lock(mutex_);
  if (const auto* word = std::get_if<channel::AssignRank>(&message)) {
    started_with_ = newest_.generation = word->restart_count;
    return;
  }
  if (const auto* regroup = std::get_if<channel::Regroup>(&message)) {
    if (regroup->generation > newest_.generation) newest_ = *regroup;
    held_ = false;
  } else if (std::holds_alternative<channel::Hold>(message)) {
    held_ = true;
  } else {
    return;
  }
  if (ordered()) breaker_.break_group();
  changed_.notify_all();
}

void Recovery::on_agent_gone() {
  const std::lock_guard lock(mutex_);
  agent_gone_ = true;
  changed_.notify_all();
}

channel::Regroup Recovery::begin_group(std::int64_t step) {
  breaker_.await_abort();  // without the lock: the reader thread of the channel needs it while an abort hangs
  std::unique_lock lock(mutex_);
  breaker_.mend();  // nothing watches the connections while this worker is held
  changed_.wait(lock, [this] { return !held_ || agent_gone_; });
  if (held_) throw std::runtime_error("the ddprun agent closed the worker channel while this worker waited for the next round");
  breaker_.mend();
  current_ = newest_.generation;
  joined_ = true;
  if (newest_.world_size > 0) breaker_.set_world(newest_.world_size);
  if (current_ != started_with_) channel_->send(channel::RegroupReady{.generation = current_, .step = step});
  return newest_;
}

bool Recovery::survives(const std::exception_ptr& error) {
  if (is_our_own(error)) return false;
  const bool lost_peer = classify(error).kind == channel::ErrorKind::kLostPeer;
  std::unique_lock lock(mutex_);
  if (!joined_) return false;
  changed_.wait_for(lock, lost_peer ? kTimeToBeOrdered : std::chrono::seconds(0), [this] { return ordered() || agent_gone_; });
  return ordered() && !agent_gone_;
}

}  // namespace ddprun::trainer
