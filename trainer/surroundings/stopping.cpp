#include "trainer/surroundings/stopping.hpp"

#include <c10/util/Exception.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/surroundings/agent_channel.hpp"
#include "trainer/surroundings/signals.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::chrono::seconds kAgreementTimeout{10};
constexpr std::string_view kNobodyAsks = "-";

std::vector<std::uint8_t> bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string text_of(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

void leave_without_saving(int signal, const char* why) {
  std::fprintf(stderr, "ddptrain: leaving without saving: %s\n", why);
  leave_now(128 + signal);
}

// After the deadline the worker would be killed anyway. The main thread may hang in a collective, so another thread ends the
// process.
void leave_after(std::chrono::milliseconds deadline) {
  std::thread([deadline] {
    std::this_thread::sleep_for(deadline);
    leave_without_saving(SIGTERM, "the deadline for saving is over");
  }).detach();
}

}  // namespace

void StoppingByAgent::attach(AgentChannel& channel) {
  const std::lock_guard lock(mutex_);
  channel_ = &channel;
  if (answer_) channel_->send(*answer_);
  answer_.reset();
}

void StoppingByAgent::on_message(const channel::FromAgent& message) {
  if (const auto* stop = std::get_if<channel::Stop>(&message)) on_stop(*stop);
  if (const auto* at = std::get_if<channel::StopAt>(&message)) gate_.stop_at(at->step);
  // IgnoreSignal: the signal did not come from the agent, so nothing changes.
}

void StoppingByAgent::on_stop(const channel::Stop& stop) {
  if (stop.mode == channel::Stop::Mode::kNow) leave_now(128 + SIGTERM);
  const std::lock_guard lock(mutex_);
  if (asked_) return;
  asked_ = true;
  if (stop.deadline_ms > 0) leave_after(std::chrono::milliseconds(stop.deadline_ms));
  const channel::StopReady ready{.started = gate_.ask()};
  if (channel_ != nullptr) {
    channel_->send(ready);
  } else {
    answer_ = std::make_unique<channel::StopReady>(ready);
  }
}

void StoppingByAgent::on_signal(int signal) {
  if (signal == SIGINT) return;
  const std::lock_guard lock(mutex_);
  if (asked_) return;  // the signal that follows Stop{save}
  if (channel_ == nullptr || !channel_->connected()) leave_now(128 + signal);
  channel_->send(channel::SignalReceived{.signal = signal});
}

// The agreement thread may wait for ranks that have ended, so it is woken first.
StoppingByStore::~StoppingByStore() {
  if (!agreement_.joinable()) return;
  over_ = true;
  try {
    store_->set(target_key(rank_), bytes_of(kNobodyAsks));
  } catch (const std::exception&) {  // the store has ended, and so has the wait
  }
  agreement_.join();
}

void StoppingByStore::on_group(c10::intrusive_ptr<c10d::Store> store, int rank, int world, int restart) {
  const std::lock_guard lock(mutex_);
  store_ = std::move(store);
  rank_ = rank;
  world_ = world;
  prefix_ = "stop/" + std::to_string(restart) + "/";
  has_group_ = true;
}

void StoppingByStore::on_signal(int signal) {
  const std::lock_guard lock(mutex_);
  if (!has_group_) leave_now(128 + signal);
  if (asked_) {
    // Slurm sends SIGTERM twice (FAULTS.md). Only a second Ctrl-C means "now".
    if (signal == SIGINT) leave_now(128 + signal);
    return;
  }
  asked_ = true;
  const std::int64_t started = gate_.ask();
  if (world_ == 1) {
    gate_.stop_at(started);
    return;
  }
  agreement_ = std::thread([this, started, signal] { agree(started, signal); });
}

std::string StoppingByStore::target_key(int rank) const {
  return prefix_ + "target/" + std::to_string(rank);
}

// The last rank to get here sends the largest number to each rank. Each has a key of its own, so that a rank that ends can
// cancel its own wait.
void StoppingByStore::agree(std::int64_t started, int signal) {
  try {
    // A connection of its own: a wait on the shared one would block the main thread, which may still need it.
    const auto store = store_->clone();
    store->set(prefix_ + std::to_string(rank_), bytes_of(std::to_string(started)));
    if (store->add(prefix_ + "arrived", 1) == world_) {
      std::int64_t target = started;
      for (int rank = 0; rank < world_; ++rank)
        target = std::max<std::int64_t>(target, std::stoll(text_of(store->get(prefix_ + std::to_string(rank)))));
      for (int rank = 0; rank < world_; ++rank) store->set(target_key(rank), bytes_of(std::to_string(target)));
    }
    store->wait({target_key(rank_)}, kAgreementTimeout);
    const std::string target = text_of(store->get(target_key(rank_)));
    if (target != kNobodyAsks) gate_.stop_at(std::stoll(target));
  } catch (const c10::DistStoreError&) {
    if (!over_) leave_without_saving(signal, "not every rank got the signal within 10 s");
  } catch (const std::exception&) {
    if (!over_) leave_without_saving(signal, "the store with which the ranks agree where to stop is gone");
  }
}

}  // namespace ddprun::trainer
