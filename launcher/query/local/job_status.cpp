#include "launcher/query/local/job_status.hpp"

#include <algorithm>
#include <csignal>

#include <nlohmann/json.hpp>

#include "common/base/overloaded.hpp"
#include "common/channel/fields.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

double seconds_between(std::int64_t begin_ns, std::int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) / 1e9;
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

void JobStatus::on(const RunEvent& event) {
  std::visit(Overloaded{[this](const RunStarted& started) { started_ns_ = started.time_ns; },
                        [this](const RoundStarted&) {
                          state_ = "running";
                          meter_.restart();
                          progress_ = false;  // only the node of rank 0 reports progress, and this may now be another node
                        },
                        [this](const WorkerReported& reported) {
                          const auto* progress = std::get_if<channel::Progress>(&reported.message);
                          if (progress == nullptr || reported.rank != 0 || round_.find(0) == nullptr) return;
                          meter_.add(*progress, reported.time_ns);
                          progress_ = true;
                        },
                        [this](const RoundFailed& failed) {
                          last_failure_ = "rank " + std::to_string(failed.first.rank) + ": " + describe_failure(failed.first);
                          if (failed.decision == RoundFailed::Decision::kRestart) state_ = "restarting";
                          if (failed.decision == RoundFailed::Decision::kGiveUp) state_ = "ending";
                        },
                        [this](const RegroupFailed&) { state_ = "restarting"; },
                        [this](const CutOff& cut_off) {
                          last_failure_ = describe(cut_off);
                          state_ = "restarting";
                        },
                        [this](const StopRequested& stop) {
                          if (stop.effect != StopRequested::Effect::kNothingNew) state_ = "stopping";
                        },
                        Ignored<NodesChanged, WorkerStarted, WorkerEnded, WorkerContinued, Straggler, Regrouped, StandbyWaits,
                                StandbyEnded, StopIsSlow, WorkersLeft, LeftoversFound, HelperIgnored, InputWasRead, FirstOutput,
                                RunDirectoryRemoved, RunEnded>{}},
             event);
}

std::vector<std::pair<int, std::int64_t>> JobStatus::running_workers() const {
  std::vector<std::pair<int, std::int64_t>> running;
  for (const auto& [rank, worker] : round_.workers()) {
    if (!worker.ended) running.emplace_back(rank, worker.pid);
  }
  return running;
}

std::string JobStatus::json(const StatusContext& context) const {
  const std::int64_t now_ns = context.now_ns;
  Json document{{"version", kStatusVersion},
                {"pid", facts_.agent},
                {"host", facts_.host},
                {"title", plan_.title},
                {"kind", plan_.kind == Plan::Kind::kPython ? "script" : name_of(plan_.kind)},
                {"state", state_},
                {"seconds", started_ns_ > 0 ? seconds_between(started_ns_, now_ns) : 0.0},
                {"run_dir", plan_.run_dir.string()},
                {"logs", facts_.logs.string()},
                {"report", facts_.report.string()},
                {"round", round_.round().round},
                {"restart_count", round_.round().restart_count},
                {"max_restarts", plan_.max_restarts},
                {"world_size", round_.round().world_size},
                {"nodes", round_.round().nodes},
                {"node_rank", round_.round().group_rank},
                {"several_nodes", plan_.rendezvous.many()},
                {"min_nodes", plan_.rendezvous.min_nodes},
                {"leads", context.leads},
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
  for (const auto& [rank, worker] : round_.workers()) {
    Json one{{"rank", rank}, {"local_rank", worker.local_rank}, {"pid", worker.pid}};
    one["state"] = worker.ended ? "ended" : "running";
    one["how_it_ended"] = worker.ended ? describe(*worker.ended) : "";
    one["phase"] = worker.phase ? Json(channel::protocol_name(*worker.phase)) : Json(nullptr);
    one["step"] = worker.step >= 0 ? Json(worker.step) : Json(nullptr);
    one["silent_s"] = worker.last_message_ns > 0 ? Json(seconds_between(worker.last_message_ns, now_ns)) : Json(nullptr);
    one["own_s"] = or_null(worker.own_s);
    one["waiting_s"] = or_null(worker.waiting_s);
    const std::int64_t memory = worker.ended || !context.memory_of ? 0 : context.memory_of(worker.pid);
    one["memory_bytes"] = memory > 0 ? Json(memory) : Json(nullptr);
    document["workers"].push_back(std::move(one));
  }
  document["workers_left_out"] = 0;
  const auto text = [&] { return document.dump(-1, ' ', false, Json::error_handler_t::replace); };
  if (std::string whole = text(); whole.size() <= context.max_bytes) return whole;
  document["workers_left_out"] = round_.workers().size();
  document["workers"] = Json::array();
  return text();
}

}  // namespace ddprun
