// Implementation of channel_store.hpp. Each operation sends one request and waits for one reply. append, multiGet and multiSet
// are the defaults of c10d::Store, which call the operations below.
#include "trainer/parallel/channel_store.hpp"

#include <c10/util/Exception.h>

namespace ddprun::trainer {
namespace {

using Op = channel::StoreRequest::Op;
using Status = channel::StoreReply::Status;

std::string to_text(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}
std::vector<std::uint8_t> to_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string joined(const std::vector<std::string>& keys) {
  std::string text;
  for (const auto& key : keys) text += (text.empty() ? "" : ", ") + key;
  return text;
}

// Converts a timeout from the format of c10d to the format of the worker channel. "No limit" is kNoTimeout (0) in c10d, and a
// negative number in the channel.
std::int64_t channel_timeout(std::chrono::milliseconds timeout) {
  return timeout == c10d::Store::kNoTimeout ? -1 : static_cast<std::int64_t>(timeout.count());
}

channel::StoreRequest request_for(Op op, std::vector<std::string> keys) {
  channel::StoreRequest request;
  request.op = op;
  request.keys = std::move(keys);
  return request;
}

}  // namespace

ChannelStore::ChannelStore(AgentChannel& channel, std::chrono::milliseconds timeout, int generation)
    : c10d::Store(timeout), channel_(channel), generation_(generation) {}

c10::intrusive_ptr<c10d::Store> ChannelStore::clone() {
  return c10::make_intrusive<ChannelStore>(channel_, timeout_, generation_);
}

channel::StoreReply ChannelStore::query(channel::StoreRequest request) {
  const std::string keys = joined(request.keys);
  const std::int64_t timeout = request.timeout_ms;
  channel::StoreReply reply = channel_.request(std::move(request), generation_);
  if (reply.status == Status::kTimeout) {
    C10_THROW_ERROR(DistStoreError, "wait timeout after " + std::to_string(timeout) + "ms, keys: " + keys);
  }
  if (reply.status == Status::kError) {
    C10_THROW_ERROR(DistStoreError, "the agent's store refused a request for \"" + keys + "\": " + reply.message);
  }
  return reply;
}

void ChannelStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  auto request = request_for(Op::kSet, {key});
  request.value = to_text(value);
  query(std::move(request));
}

std::vector<std::uint8_t> ChannelStore::compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                                   const std::vector<std::uint8_t>& desired) {
  auto request = request_for(Op::kCompareSet, {key});
  request.expected = to_text(expected);
  request.value = to_text(desired);
  const auto reply = query(std::move(request));
  // c10d requires this result: `expected`, if the key does not exist and `expected` is not empty.
  return reply.status == Status::kNotFound ? expected : to_bytes(reply.value);
}

std::vector<std::uint8_t> ChannelStore::get(const std::string& key) {
  auto request = request_for(Op::kGet, {key});
  request.timeout_ms = channel_timeout(timeout_);
  const auto reply = query(std::move(request));
  if (reply.status != Status::kOk) C10_THROW_ERROR(DistStoreError, "the agent's store has no key \"" + key + "\"");
  return to_bytes(reply.value);
}

std::int64_t ChannelStore::add(const std::string& key, std::int64_t amount) {
  auto request = request_for(Op::kAdd, {key});
  request.amount = amount;
  return query(std::move(request)).number;
}

bool ChannelStore::deleteKey(const std::string& key) {
  return query(request_for(Op::kDelete, {key})).number != 0;
}

bool ChannelStore::check(const std::vector<std::string>& keys) {
  return query(request_for(Op::kCheck, keys)).number != 0;
}

std::int64_t ChannelStore::getNumKeys() {
  return query(request_for(Op::kNumKeys, {})).number;
}

void ChannelStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void ChannelStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  auto request = request_for(Op::kWait, keys);
  request.timeout_ms = channel_timeout(timeout);
  query(std::move(request));
}

}  // namespace ddprun::trainer
