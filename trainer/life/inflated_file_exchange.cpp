#include "trainer/life/inflated_file_exchange.hpp"

#include <chrono>
#include <cstdint>
#include <exception>
#include <vector>

#include "trainer/parallel/process_group.hpp"
#include "trainer/surroundings/agent_channel.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::chrono::seconds kInflatingTime{20};  // maximum time to wait for the worker that inflates the data set

std::string key_of(const WorkerEnvironment& environment, const std::string& file) {
  return "inflated/" + std::to_string(environment.group_rank) + "/" + file;
}

void publish(c10d::Store& store, const std::string& key, const std::string& memory) {
  try {
    store.set(key, std::vector<std::uint8_t>(memory.begin(), memory.end()));
    // The call fails if the agent has exited, or if this worker waits between two groups. In the second case, offer_again()
    // repeats the offer later.
  } catch (const std::exception&) {
  }
}

}  // namespace

InflatedFiles InflatedFileExchange::files(const WorkerEnvironment& environment, AgentChannel* agent) {
  InflatedFiles files;
  if (agent == nullptr || environment.local_world_size < 2) return files;
  const auto store = make_store(environment, agent, kInflatingTime);
  // The key is computed now, because a later round may give this node another group rank.
  const std::string here = key_of(environment, "");
  if (environment.local_rank == 0) {
    files.offer = [this, store, here](const std::string& file, const std::string& memory) {
      {
        const std::lock_guard lock(mutex_);
        offered_[file] = memory;
      }
      publish(*store, here + file, memory);
    };
  } else {
    files.find = [store, here](const std::string& file) -> std::string {
      try {
        const std::vector<std::uint8_t> memory = store->get(here + file);
        return {memory.begin(), memory.end()};
      } catch (const std::exception&) {
        return {};
      }
    };
  }
  return files;
}

void InflatedFileExchange::offer_again(const WorkerEnvironment& environment, AgentChannel& agent) {
  const std::lock_guard lock(mutex_);
  if (offered_.empty()) return;
  const auto store = make_store(environment, &agent, kInflatingTime);
  for (const auto& [file, memory] : offered_) publish(*store, key_of(environment, file), memory);
}

}  // namespace ddprun::trainer
