// Implementation of job_status.hpp.
#include "launcher/control/job_status.hpp"

#include <algorithm>
#include <csignal>

#include <nlohmann/json.hpp>

#include "common/base/overloaded.hpp"
#include "common/channel/step_times.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of_phase(channel::Phase phase) {
  switch (phase) {
    case channel::Phase::kStarting:
      return "starting";
    case channel::Phase::kJoining:
      return "joining";
    case channel::Phase::kRunning:
      return "running";
    case channel::Phase::kSaving:
      return "saving";
    case channel::Phase::kEvaluating:
      return "evaluating";
    case channel::Phase::kDone:
      return "done";
  }
  return "";
}

const char* name_of_kind(Plan::Kind kind) {
  switch (kind) {
    case Plan::Kind::kTrain:
      return "train";
    case Plan::Kind::kPython:
      return "script";
    case Plan::Kind::kModule:
      return "module";
    case Plan::Kind::kProgram:
      return "program";
  }
  return "";
}

double seconds_between(std::int64_t begin_ns, std::int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) / 1e9;
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

void JobStatus::on(const RunEvent& event) {
  std::visit(
      Overloaded{
          [this](const RunStarted& started) { see(started); }, [this](const RoundStarted& started) { see(started); },
          [this](const WorkerStarted& started) { see(started); }, [this](const WorkerSpoke& spoke) { see(spoke); },
          [this](const WorkerEnded& ended) { see(ended); }, [this](const RoundFailed& failed) { see(failed); },
          [this](const RegroupFailed& failed) { see(failed); }, [this](const StopRequested& stop) { see(stop); },
          [this](const CutOff& cut_off) { see(cut_off); },
          Ignored<NodesChanged, WorkerContinued, Straggler, Regrouped, StandbyWaits, StandbyEnded, StopIsSlow, WorkersLeft,
                  LeftoversFound, HelperIgnored, InputWasRead, FirstOutput, RunDirectoryRemoved, RunEnded>{}},
      event);
}

void JobStatus::see(const RunStarted& event) {
  started_ns_ = event.time_ns;
}

// After a regroup the survivors keep running. Their ranks shift if their node's rank has changed.
void JobStatus::see(const RoundStarted& event) {
  state_ = "running";
  meter_.restart();
  progress_ = false;  // rank 0 reports progress, and may now be on another node
  if (!event.regroup) {
    workers_.clear();
  } else if (const int moved = (event.group_rank - round_.group_rank) * event.workers_here; moved != 0) {
    std::map<int, Worker> renamed;
    for (auto& [rank, worker] : workers_) renamed.emplace(rank + moved, worker);
    workers_ = std::move(renamed);
  }
  round_ = event;
}

void JobStatus::see(const WorkerStarted& event) {
  workers_[event.rank] = {.local_rank = event.local_rank, .pid = event.pid, .started_ns = event.time_ns};
}

void JobStatus::see(const WorkerSpoke& event) {
  const auto found = workers_.find(event.rank);
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  worker.heard_ns = event.time_ns;
  if (const auto* phase = std::get_if<channel::PhaseChange>(&event.message)) {
    worker.phase = phase->phase;
    worker.step = phase->step;
    worker.epoch = phase->epoch;
  } else if (const auto* progress = std::get_if<channel::Progress>(&event.message)) {
    worker.step = progress->step;
    worker.epoch = progress->epoch;
    if (event.rank != 0) return;
    meter_.add(*progress, event.time_ns);
    progress_ = true;
  } else if (const auto* pace = std::get_if<channel::Pace>(&event.message)) {
    const auto total = channel::total_of(*pace);
    if (!total) return;
    worker.own_s = static_cast<double>(total->own_us) / 1e6 / static_cast<double>(total->steps);
    worker.waiting_s = static_cast<double>(total->waiting_us) / 1e6 / static_cast<double>(total->steps);
  }
}

void JobStatus::see(const WorkerEnded& event) {
  const auto found = workers_.find(event.rank);
  if (found != workers_.end() && found->second.pid == event.pid) found->second.ended = event.status;
}

void JobStatus::see(const RoundFailed& event) {
  last_failure_ = "rank " + std::to_string(event.first.rank) + ": " + how_it_failed(event.first);
  if (event.decision != RoundFailed::Decision::kRegroup) {
    state_ = event.decision == RoundFailed::Decision::kRestart ? "restarting" : "ending";
  }
}

void JobStatus::see(const RegroupFailed&) {
  state_ = "restarting";
}

void JobStatus::see(const CutOff& event) {
  last_failure_ = describe(event);
  state_ = "restarting";
}

void JobStatus::see(const StopRequested& event) {
  if (event.effect != StopRequested::Effect::kNothingNew) state_ = "stopping";
}

std::vector<std::pair<int, std::int64_t>> JobStatus::running_workers() const {
  std::vector<std::pair<int, std::int64_t>> running;
  for (const auto& [rank, worker] : workers_) {
    if (!worker.ended) running.emplace_back(rank, worker.pid);
  }
  return running;
}

std::string JobStatus::json(const StatusMoment& moment) const {
  const std::int64_t now_ns = moment.now_ns;
  Json document{{"version", kStatusVersion},
                {"pid", facts_.agent},
                {"host", facts_.host},
                {"title", plan_.title},
                {"kind", name_of_kind(plan_.kind)},
                {"state", state_},
                {"seconds", started_ns_ > 0 ? seconds_between(started_ns_, now_ns) : 0.0},
                {"run_dir", plan_.run_dir.string()},
                {"logs", facts_.logs.string()},
                {"report", facts_.report.string()},
                {"round", round_.round},
                {"restart_count", round_.restart_count},
                {"max_restarts", plan_.max_restarts},
                {"world_size", round_.world_size},
                {"nodes", round_.nodes},
                {"node_rank", round_.group_rank},
                {"several_nodes", plan_.rendezvous.many()},
                {"leads", moment.leads},
                {"last_failure", last_failure_}};
  document["progress"] = nullptr;
  if (progress_) {
    const ProgressShown shown = meter_.shown();
    document["progress"] = Json{{"step", shown.progress.step},
                                {"steps_total", shown.progress.steps_total},
                                {"epoch", shown.progress.epoch},
                                {"epochs", shown.progress.epochs},
                                {"loss", or_null(shown.progress.loss)},
                                {"samples_per_s", or_null(shown.progress.samples_per_s)},
                                {"seconds_left", or_null(shown.seconds_left)},
                                {"line", progress_line(shown)}};
  }
  document["workers"] = Json::array();
  for (const auto& [rank, worker] : workers_) {
    Json one{{"rank", rank}, {"local_rank", worker.local_rank}, {"pid", worker.pid}};
    one["state"] = worker.ended ? "ended" : "running";
    one["how_it_ended"] = worker.ended ? describe(*worker.ended) : "";
    one["phase"] = worker.phase ? Json(name_of_phase(*worker.phase)) : Json(nullptr);
    one["step"] = worker.step >= 0 ? Json(worker.step) : Json(nullptr);
    one["silent_s"] = worker.heard_ns > 0 ? Json(seconds_between(worker.heard_ns, now_ns)) : Json(nullptr);
    one["own_s"] = or_null(worker.own_s);
    one["waiting_s"] = or_null(worker.waiting_s);
    const std::int64_t memory = worker.ended || !moment.memory_of ? 0 : moment.memory_of(worker.pid);
    one["memory_bytes"] = memory > 0 ? Json(memory) : Json(nullptr);
    document["workers"].push_back(std::move(one));
  }
  document["workers_left_out"] = 0;
  const auto text = [&] { return document.dump(-1, ' ', false, Json::error_handler_t::replace); };
  if (std::string whole = text(); whole.size() <= moment.most_bytes) return whole;
  document["workers_left_out"] = workers_.size();
  document["workers"] = Json::array();
  return text();
}

}  // namespace ddprun
