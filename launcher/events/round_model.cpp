#include "launcher/events/round_model.hpp"

#include <utility>
#include <variant>

#include "common/channel/step_times.hpp"

namespace ddprun {

void RoundModel::on(const RunEvent& event) {
  if (const auto* round = std::get_if<RoundStarted>(&event)) {
    begin(*round);
  } else if (const auto* started = std::get_if<WorkerStarted>(&event)) {
    workers_[started->rank] = {.local_rank = started->local_rank, .pid = started->pid, .started_ns = started->time_ns};
  } else if (const auto* reported = std::get_if<WorkerReported>(&event)) {
    handle(*reported);
  } else if (const auto* ended = std::get_if<WorkerEnded>(&event)) {
    const auto found = workers_.find(ended->rank);
    if (found != workers_.end() && found->second.pid == ended->pid) found->second.ended = ended->status;
  }
}

const RoundModel::Worker* RoundModel::find(int rank) const {
  const auto found = workers_.find(rank);
  return found == workers_.end() ? nullptr : &found->second;
}

void RoundModel::begin(const RoundStarted& event) {
  const int moved = (event.group_rank - round_.group_rank) * event.workers_here;
  std::map<int, Worker> survivors;
  if (event.regroup) {
    for (auto& [rank, worker] : workers_) survivors.emplace(rank + moved, std::move(worker));
  }
  workers_ = std::move(survivors);
  round_ = event;
}

void RoundModel::handle(const WorkerReported& event) {
  const auto found = workers_.find(event.rank);
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  worker.last_message_ns = event.time_ns;
  if (const auto* phase = std::get_if<channel::PhaseChange>(&event.message)) {
    worker.phase = phase->phase;
    worker.step = phase->step;
    worker.epoch = phase->epoch;
  } else if (const auto* progress = std::get_if<channel::Progress>(&event.message)) {
    worker.step = progress->step;
    worker.epoch = progress->epoch;
  } else if (const auto* pace = std::get_if<channel::Pace>(&event.message)) {
    const auto total = channel::total_of(*pace);
    if (!total) return;
    worker.own_s = static_cast<double>(total->own_us) / 1e6 / static_cast<double>(total->steps);
    worker.waiting_s = static_cast<double>(total->waiting_us) / 1e6 / static_cast<double>(total->steps);
  }
}

}  // namespace ddprun
