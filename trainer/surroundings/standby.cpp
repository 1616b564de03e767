// Implementation of standby.hpp.
#include "trainer/surroundings/standby.hpp"

#include <stdexcept>
#include <string>
#include <variant>

namespace ddprun::trainer {

void Standby::on_message(const channel::FromAgent& message) {
  const auto* word = std::get_if<channel::AssignRank>(&message);
  if (word == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    word_ = *word;
  }
  changed_.notify_all();
}

void Standby::on_agent_gone() {
  {
    const std::lock_guard lock(mutex_);
    agent_gone_ = true;
  }
  changed_.notify_all();
}

channel::AssignRank Standby::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return word_ || agent_gone_; });
  if (!word_) throw std::runtime_error("the ddprun agent closed the worker channel while this standby waited for a rank");
  return *word_;
}

void take_place(WorkerEnvironment& environment, const channel::AssignRank& word) {
  if (word.rank < 0 || word.rank >= environment.world_size || word.local_rank < 0 ||
      word.local_rank >= environment.local_world_size) {
    throw std::runtime_error("the ddprun agent gave this standby rank " + std::to_string(word.rank) + " (local " +
                             std::to_string(word.local_rank) + ") in a job of " + std::to_string(environment.world_size) +
                             " workers");
  }
  environment.rank = word.rank;
  environment.local_rank = word.local_rank;
  environment.restart_count = word.restart_count;
}

}  // namespace ddprun::trainer
