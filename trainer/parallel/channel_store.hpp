// The workers' c10d store over the worker channel. The agent holds the keys, so the store survives the death of rank 0, and the
// worker opens no port for it. process_group.cpp makes it; Gloo calls it from several threads. The channel must outlive it.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {

class ChannelStore final : public c10d::Store {
 public:
  // `generation` is that of the group that uses this store. A wait in the store ends when the agent orders a newer generation.
  ChannelStore(AgentChannel& channel, std::chrono::milliseconds timeout, int generation = AgentChannel::kAnyGeneration);

  using c10d::Store::compareSet;
  using c10d::Store::set;

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  // Waits for the key. Throws c10::DistStoreError that names the key if it isn't set within the timeout.
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  channel::StoreReply ask(channel::StoreRequest request);

  AgentChannel& channel_;
  int generation_;
};

}  // namespace ddprun::trainer
