// Implementation of recovery.hpp: orders come on the channel's thread, groups are made and lost on the training thread.
#include "trainer/recovery.hpp"

#include <algorithm>
#include <chrono>
#include <variant>

#include "common/error.hpp"
#include "trainer/failure.hpp"
#include "trainer/parallel/agent_channel.hpp"

namespace ddprun::trainer {
namespace {

// The agent sees a worker's end within a millisecond. Only when none has ended (a connection broke) is there no order.
constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::milliseconds kLookForAgent{100};

bool is_our_own(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return true;  // diverged, a checkpoint that can't be saved: these need no peer to go wrong
  } catch (...) {
    return classify(error).kind == channel::ErrorKind::kOutOfMemory;
  }
}

}  // namespace

void Recovery::on_message(const channel::FromAgent& message) {
  if (const auto* word = std::get_if<channel::TakeOver>(&message)) {
    const std::lock_guard lock(mutex_);
    started_with_ = newest_ = word->restart_count;
    return;
  }
  const auto* regroup = std::get_if<channel::Regroup>(&message);
  if (regroup == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    newest_ = std::max(newest_, regroup->generation);
    if (ordered()) breaker_.break_group();
  }
  changed_.notify_all();
}

int Recovery::begin_group(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  current_ = newest_;
  breaker_.mend();
  if (current_ != started_with_) channel_->send(channel::RegroupReady{.generation = current_, .step = step});
  return current_;
}

bool Recovery::survives(const std::exception_ptr& error) {
  if (is_our_own(error)) return false;
  const bool lost_peer = classify(error).kind == channel::ErrorKind::kLostPeer;
  const auto patience_ends = std::chrono::steady_clock::now() + (lost_peer ? kPatience : std::chrono::seconds(0));
  std::unique_lock lock(mutex_);
  while (!ordered() && channel_->connected() && std::chrono::steady_clock::now() < patience_ends) {
    changed_.wait_for(lock, kLookForAgent);
  }
  return ordered();
}

}  // namespace ddprun::trainer
