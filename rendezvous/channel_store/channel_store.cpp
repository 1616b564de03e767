// Implementation of channel_store.hpp. A waiter is a get or wait request whose keys are not all set yet. As in TCPStore, a
// waiter stores the set of its missing keys. When a client sets one of these keys, the key is removed from the set. From then
// on, the key counts as present for this waiter, even if another request deletes the key before the other keys are set.
#include "rendezvous/channel_store/channel_store.hpp"

#include <algorithm>

#include "common/base/numbers.hpp"

namespace ddprun {
namespace {

using Op = channel::StoreRequest::Op;
using Status = channel::StoreReply::Status;

void fail(channel::StoreReply& reply, std::string message) {
  reply.status = Status::kError;
  reply.message = std::move(message);
}

bool takes_many_keys(Op op) {
  return op == Op::kWait || op == Op::kCheck;
}

}  // namespace

std::vector<Store::Answer> Store::handle(int client, const channel::StoreRequest& request, TimePoint now) {
  std::vector<Answer> answers;
  channel::StoreReply reply{.id = request.id};
  const auto answer = [&] { answers.insert(answers.begin(), {client, std::move(reply)}); };

  if (auto why = refusal(request)) {
    fail(reply, std::move(*why));
    answer();
    return answers;
  }

  switch (request.op) {
    case Op::kSet:
      if (put(request.keys[0], request.value)) {
        wake(request.keys[0], answers);
      } else {
        fail(reply, "the store is full: " + std::to_string(values_.size()) + " keys, " + std::to_string(bytes_) + " bytes");
      }
      break;
    case Op::kGet:
    case Op::kWait:
      if (!all_present(request.keys)) {
        wait_for(client, request, now, answers);
        return answers;
      }
      if (request.op == Op::kGet) reply.value = values_.at(request.keys[0]);
      break;
    case Op::kTryGet:
      if (const auto found = values_.find(request.keys[0]); found != values_.end()) {
        reply.value = found->second;
      } else {
        reply.status = Status::kNotFound;
      }
      break;
    case Op::kAdd:
      add_to(request, reply);
      if (reply.status == Status::kOk) wake(request.keys[0], answers);
      break;
    case Op::kCompareSet:
      compare_and_set(request, reply);
      if (values_.contains(request.keys[0])) wake(request.keys[0], answers);
      break;
    case Op::kDelete:
      if (const auto found = values_.find(request.keys[0]); found != values_.end()) {
        bytes_ -= found->first.size() + found->second.size();
        values_.erase(found);
        reply.number = 1;
      }
      break;
    case Op::kCheck:
      reply.number = all_present(request.keys) ? 1 : 0;
      break;
    case Op::kNumKeys:
      reply.number = static_cast<std::int64_t>(values_.size());
      break;
  }
  answer();
  return answers;
}

// Returns the reason if the request is invalid; nullopt if it is valid.
std::optional<std::string> Store::refusal(const channel::StoreRequest& request) const {
  if (request.op == Op::kNumKeys) return std::nullopt;
  if (request.keys.empty()) return "a store request needs a key";
  if (request.keys.size() > 1 && !takes_many_keys(request.op)) return "this store operation takes one key";
  for (const std::string& key : request.keys) {
    if (key.size() > limits_.key_bytes) {
      return "a key of " + std::to_string(key.size()) + " bytes; at most " + std::to_string(limits_.key_bytes) + " are allowed";
    }
  }
  const std::size_t value = std::max(request.value.size(), request.expected.size());
  if (value > limits_.value_bytes) {
    return "a value of " + std::to_string(value) + " bytes for key '" + request.keys[0] + "'; at most " +
           std::to_string(limits_.value_bytes) + " are allowed";
  }
  return std::nullopt;
}

bool Store::put(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  if (found != values_.end()) {
    const std::size_t after = bytes_ - found->second.size() + value.size();
    if (after > limits_.total_bytes) return false;
    found->second = value;
    bytes_ = after;
    return true;
  }
  if (values_.size() >= limits_.keys || bytes_ + key.size() + value.size() > limits_.total_bytes) return false;
  values_.emplace(key, value);
  bytes_ += key.size() + value.size();
  return true;
}

void Store::add_to(const channel::StoreRequest& request, channel::StoreReply& reply) {
  const std::string& key = request.keys[0];
  std::int64_t sum = 0;
  if (const auto found = values_.find(key); found != values_.end()) {
    const auto current = exact_number<std::int64_t>(found->second);
    if (!current) return fail(reply, "add: the value of key '" + key + "' is not a decimal number");
    sum = *current;
  }
  if (__builtin_add_overflow(sum, request.amount, &sum))
    return fail(reply, "add: the sum of key '" + key + "' does not fit in 64 bits");
  if (!put(key, std::to_string(sum))) return fail(reply, "the store is full");
  reply.number = sum;
}

// Behaves like c10d::HashStore::compareSet: an absent key matches if `expected` is empty. If an absent key does not match, the
// reply contains `expected` instead of a value.
void Store::compare_and_set(const channel::StoreRequest& request, channel::StoreReply& reply) {
  const auto found = values_.find(request.keys[0]);
  const bool absent = found == values_.end();
  const bool matches = absent ? request.expected.empty() : found->second == request.expected;
  if (!matches) {
    reply.value = absent ? request.expected : found->second;
    return;
  }
  if (!put(request.keys[0], request.value)) return fail(reply, "the store is full");
  reply.value = request.value;
}

void Store::wait_for(int client, const channel::StoreRequest& request, TimePoint now, std::vector<Answer>& answers) {
  const auto waiting = std::count_if(waiters_.begin(), waiters_.end(), [&](const Waiter& w) { return w.client == client; });
  if (static_cast<std::size_t>(waiting) >= limits_.waiters_per_client) {
    answers.push_back({client, {.id = request.id, .status = Status::kError, .message = "too many waiting store requests"}});
    return;
  }
  if (request.timeout_ms == 0) {
    answers.push_back({client, {.id = request.id, .status = Status::kTimeout}});
    return;
  }
  Waiter waiter;
  waiter.client = client;
  waiter.request = request.id;
  waiter.wants_value = request.op == Op::kGet;
  waiter.first_key = request.keys[0];
  for (const std::string& key : request.keys) {
    if (!values_.contains(key)) waiter.missing.insert(key);
  }
  // A timeout of 100 years or more counts as no timeout, because its addition to `now` could overflow.
  constexpr std::int64_t kUnlimitedMs = 100LL * 365 * 24 * 3600 * 1000;
  if (request.timeout_ms > 0 && request.timeout_ms < kUnlimitedMs) {
    waiter.deadline = now + std::chrono::milliseconds(request.timeout_ms);
  }
  waiters_.push_back(std::move(waiter));
}

void Store::wake(const std::string& key, std::vector<Answer>& answers) {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (waiter->missing.erase(key) == 0 || !waiter->missing.empty()) {
      ++waiter;
      continue;
    }
    channel::StoreReply reply{.id = waiter->request};
    if (waiter->wants_value) reply.value = values_.at(waiter->first_key);
    answers.push_back({waiter->client, std::move(reply)});
    waiter = waiters_.erase(waiter);
  }
}

bool Store::all_present(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return values_.contains(key); });
}

std::vector<Store::Answer> Store::expire(TimePoint now) {
  std::vector<std::pair<TimePoint, Answer>> expired;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (!waiter->deadline || *waiter->deadline > now) {
      ++waiter;
      continue;
    }
    // The error message names the smallest missing key, because the iteration order of a hash set can differ between runs.
    const std::string missing = *std::min_element(waiter->missing.begin(), waiter->missing.end());
    expired.push_back(
        {*waiter->deadline,
         {waiter->client,
          {.id = waiter->request, .status = Status::kTimeout, .message = "key '" + missing + "' was not set in time"}}});
    waiter = waiters_.erase(waiter);
  }
  std::stable_sort(expired.begin(), expired.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Answer> answers;
  answers.reserve(expired.size());
  for (auto& [deadline, answer] : expired) answers.push_back(std::move(answer));
  return answers;
}

std::optional<Store::TimePoint> Store::next_deadline() const {
  std::optional<TimePoint> next;
  for (const Waiter& waiter : waiters_) {
    if (waiter.deadline && (!next || *waiter.deadline < *next)) next = waiter.deadline;
  }
  return next;
}

void Store::forget(int client) {
  waiters_.remove_if([&](const Waiter& waiter) { return waiter.client == client; });
}

void Store::clear() {
  values_.clear();
  waiters_.clear();
  bytes_ = 0;
}

}  // namespace ddprun
