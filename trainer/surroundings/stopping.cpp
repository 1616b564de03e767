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
constexpr std::string_view kNoStop = "-";

std::vector<std::uint8_t> bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

std::string text_of(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

void exit_without_saving(int signal, const char* why) {
  std::fprintf(stderr, "ddptrain: exiting without saving a checkpoint: %s\n", why);
  exit_now(128 + signal);
}

// Ends the process when `deadline` has passed, before the launcher kills it. A separate thread waits for the deadline, because
// the main thread may hang in a collective.
void exit_after(std::chrono::milliseconds deadline) {
  std::thread([deadline] {
    std::this_thread::sleep_for(deadline);
    exit_without_saving(SIGTERM, "the deadline for saving has passed");
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
  // The message IgnoreSignal needs no action: the job does not stop, so training continues.
}

void StoppingByAgent::on_stop(const channel::Stop& stop) {
  if (stop.mode == channel::Stop::Mode::kNow) exit_now(128 + SIGTERM);
  const std::lock_guard lock(mutex_);
  if (requested_) return;
  requested_ = true;
  if (stop.deadline_ms > 0) exit_after(std::chrono::milliseconds(stop.deadline_ms));
  const channel::StopReady ready{.started = gate_.request_stop()};
  if (channel_ != nullptr) {
    channel_->send(ready);
  } else {
    answer_ = std::make_unique<channel::StopReady>(ready);
  }
}

void StoppingByAgent::on_signal(int signal) {
  if (signal == SIGINT) return;
  const std::lock_guard lock(mutex_);
  if (requested_) return;  // the agent has already requested a stop, and this signal is a part of that request
  if (channel_ == nullptr || !channel_->connected()) exit_now(128 + signal);
  channel_->send(channel::SignalReceived{.signal = signal});
}

// The thread in agree() may still wait for ranks that have already exited. Setting this rank's key wakes the thread, so that
// join() returns.
StoppingByStore::~StoppingByStore() {
  if (!agreement_.joinable()) return;
  over_ = true;
  try {
    store_->set(target_key(rank_), bytes_of(kNoStop));
  } catch (const std::exception&) {  // the store is gone, so the thread's wait has already failed
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
  if (!has_group_) exit_now(128 + signal);
  if (requested_) {
    // A second SIGTERM is ignored, because Slurm sends SIGTERM twice (docs/internals/faults.md). A second Ctrl-C ends the
    // process immediately.
    if (signal == SIGINT) exit_now(128 + signal);
    return;
  }
  requested_ = true;
  const std::int64_t started = gate_.request_stop();
  if (world_ == 1) {
    gate_.stop_at(started);
    return;
  }
  agreement_ = std::thread([this, started, signal] { agree(started, signal); });
}

std::string StoppingByStore::target_key(int rank) const {
  return prefix_ + "target/" + std::to_string(rank);
}

// Publishes this rank's number of started steps. The last rank to publish computes the maximum, and writes it to one key for
// each rank. Each rank waits for its own key, so that a rank that exits can set its key to cancel the wait.
void StoppingByStore::agree(std::int64_t started, int signal) {
  try {
    // A separate connection is used: a wait on the shared connection would block the main thread, which may still use it.
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
    if (target != kNoStop) gate_.stop_at(std::stoll(target));
  } catch (const c10::DistStoreError&) {
    if (!over_) exit_without_saving(signal, "not every rank received the signal within 10 s");
  } catch (const std::exception&) {
    if (!over_)
      exit_without_saving(signal, "the ranks could not agree on the last step, since the key-value store is not reachable");
  }
}

}  // namespace ddprun::trainer
