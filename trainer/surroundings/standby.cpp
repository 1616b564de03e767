#include "trainer/surroundings/standby.hpp"

#include <stdexcept>
#include <string>
#include <variant>

namespace ddprun::trainer {

void Standby::on_message(const channel::FromAgent& message) {
  const auto* assignment = std::get_if<channel::AssignRank>(&message);
  if (assignment == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    assignment_ = *assignment;
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
  changed_.wait(lock, [this] { return assignment_ || agent_gone_; });
  if (!assignment_)
    throw std::runtime_error(
        "the ddprun agent closed its connection to this standby worker while the worker waited for a rank");
  return *assignment_;
}

void take_place(WorkerEnvironment& environment, const channel::AssignRank& assignment) {
  if (assignment.rank < 0 || assignment.rank >= environment.world_size || assignment.local_rank < 0 ||
      assignment.local_rank >= environment.local_world_size) {
    throw std::runtime_error("the ddprun agent assigned rank " + std::to_string(assignment.rank) + " (local rank " +
                             std::to_string(assignment.local_rank) + ") to this standby, but the job has " +
                             std::to_string(environment.world_size) + " workers");
  }
  environment.rank = assignment.rank;
  environment.local_rank = assignment.local_rank;
  environment.restart_count = assignment.restart_count;
}

}  // namespace ddprun::trainer
