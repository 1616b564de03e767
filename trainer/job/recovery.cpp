// Implementation of recovery.hpp. The agent's messages (Hold and Regroup) arrive on the reader thread of the worker channel.
// The training thread creates and leaves process groups.
#include "trainer/job/recovery.hpp"

#include <chrono>
#include <stdexcept>
#include <variant>

#include "common/base/error.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {
namespace {

// The maximum wait for a message of the agent (Hold or Regroup) after the loss of a worker. The agent detects the exit of a
// worker within a millisecond, but on an overloaded machine the agent might not be scheduled for seconds. If no worker has
// exited, for example if only a connection broke, no message arrives.
constexpr std::chrono::seconds kRegroupOrderTimeout{30};

bool is_local_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return true;  // a lost worker did not cause this error; examples are divergence and a failed save
  } catch (...) {
    const Failure failure = classify(error);
    return failure.kind == channel::ErrorKind::kOutOfMemory || failure.others_suspect || failure.of_data;
  }
}

}  // namespace

void Recovery::on_message(const channel::FromAgent& message) {
  const std::lock_guard lock(mutex_);
  if (const auto* assignment = std::get_if<channel::AssignRank>(&message)) {
    first_generation_ = newest_.generation = assignment->restart_count;
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
  breaker_.await_abort();  // called without the lock: the abort can hang, and the reader thread must be able to take the lock
  std::unique_lock lock(mutex_);
  breaker_.end_break();  // stops the thread that closes connections, since this worker has no group while it waits
  changed_.wait(lock, [this] { return !held_ || agent_gone_; });
  if (held_)
    throw std::runtime_error(
        "the ddprun agent closed its connection to this worker while the worker waited for the next round");
  breaker_.end_break();
  current_ = newest_.generation;
  joined_ = true;
  if (newest_.world_size > 0) breaker_.set_world(newest_.world_size);
  if (current_ != first_generation_) channel_->send(channel::RegroupReady{.generation = current_, .step = step});
  return newest_;
}

bool Recovery::survives(const std::exception_ptr& error) {
  if (is_local_error(error)) return false;
  const bool lost_peer = classify(error).kind == channel::ErrorKind::kLostPeer;
  std::unique_lock lock(mutex_);
  if (!joined_) return false;
  changed_.wait_for(lock, lost_peer ? kRegroupOrderTimeout : std::chrono::seconds(0),
                    [this] { return ordered() || agent_gone_; });
  return ordered() && !agent_gone_;
}

}  // namespace ddprun::trainer
