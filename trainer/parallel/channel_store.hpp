// A c10d store whose keys the agent stores. A worker sends its requests over the worker channel. Unlike a TCPStore on rank 0,
// this store survives the loss of rank 0, and needs no port. process_group.cpp creates the store, and Gloo calls it from
// several threads. The channel must outlive the store.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {

class ChannelStore final : public c10d::Store {
 public:
  // `generation` is the generation of the process group that uses this store. If the agent starts a newer generation, a call
  // that waits for a key ends with an error.
  ChannelStore(AgentChannel& channel, std::chrono::milliseconds timeout, int generation = AgentChannel::kAnyGeneration);

  using c10d::Store::compareSet;
  using c10d::Store::set;

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  // Blocks until the key is set. After the timeout, throws c10::DistStoreError, which names the key.
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  channel::StoreReply query(channel::StoreRequest request);

  AgentChannel& channel_;
  int generation_;
};

}  // namespace ddprun::trainer
