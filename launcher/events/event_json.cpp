#include "launcher/events/event_json.hpp"

#include <cstring>
#include <nlohmann/json.hpp>

#include "common/base/exit_code.hpp"
#include "common/base/overloaded.hpp"
#include "common/base/signal_name.hpp"
#include "common/channel/fields.hpp"
#include "launcher/events/node_notice.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Builds the JSON object of an event: the fields that all events have, then `fields`.
Json event(const std::string& name, std::int64_t time_ns, const Json& fields) {
  Json object{{"event", name}, {"time_ns", time_ns}};
  object.update(fields);
  return object;
}

template <class T>
void add_if(Json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

// Returns a worker's message as JSON; null for messages that only the agent uses (such as requests to the store).
Json worker_message_json(const channel::FromWorker& message) {
  return std::visit(
      Overloaded{
          [](const channel::Hello& m) {
            return Json{{"event", "hello"}, {"version", m.version}, {"pid", m.pid}};
          },
          [](const channel::PhaseChange& m) {
            return Json{{"event", "phase"}, {"phase", channel::protocol_name(m.phase)}, {"step", m.step}, {"epoch", m.epoch}};
          },
          [](const channel::Progress& m) {
            Json object{{"event", "progress"}, {"step", m.step},     {"steps_total", m.steps_total},
                        {"epoch", m.epoch},    {"epochs", m.epochs}, {"samples", m.samples}};
            add_if(object, "loss", m.loss);
            add_if(object, "lr", m.lr);
            add_if(object, "samples_per_s", m.samples_per_s);
            for (const Metric& figure : m.figures) object["figures"][figure.name] = figure.value;
            return object;
          },
          [](const channel::EvalResult& m) {
            Json object{{"event", "evaluation"}, {"step", m.step}, {"epoch", m.epoch}};
            for (const Metric& figure : m.figures) object[figure.name] = figure.value;
            object["samples"] = m.samples;
            return object;
          },
          [](const channel::WorkerError& m) {
            Json object{{"event", "error"},
                        {"kind", channel::protocol_name(m.kind)},
                        {"message", m.message},
                        {"fatal", m.fatal},
                        {"step", m.step}};
            if (!m.device.empty()) object["device"] = m.device;
            add_if(object, "bytes_asked", m.bytes_asked);
            add_if(object, "bytes_free", m.bytes_free);
            return object;
          },
          [](const channel::CheckpointPublished& m) {
            return Json{{"event", "checkpoint"}, {"step", m.step},     {"path", m.path},
                        {"pause_s", m.pause_s},  {"save_s", m.save_s}, {"bytes", m.bytes}};
          },
          IgnoredAs<Json, channel::Pace, channel::SignalReceived, channel::StopReady, channel::SavesOnStop,
                    channel::Regroupable, channel::RegroupReady, channel::GroupFormed, channel::StandbyReady, channel::Position,
                    channel::StoreRequest>{}},
      message);
}

}  // namespace

void add_status(Json& object, const ExitStatus& status) {
  if (status.signal == 0) {
    object["exit_code"] = status.code;
    return;
  }
  object["signal"] = status.signal;
  object["signal_name"] = signal_name(status.signal);
  if (status.core_dumped) object["core_dumped"] = true;
}

Json failure_json(const Failure& failure) {
  Json object{{"rank", failure.rank}, {"pid", failure.pid}, {"cause", ddprun::name_of(failure.cause)}};
  if (failure.status) add_status(object, *failure.status);
  if (!failure.message.empty()) object["message"] = failure.message;
  if (!failure.call_stack.empty()) object["call_stack"] = failure.call_stack;
  if (!failure.error_file.empty()) object["error_file"] = failure.error_file;
  if (failure.step >= 0) object["step"] = failure.step;
  object["time_ns"] = failure.time_ns;
  if (!failure.host.empty()) object["host"] = failure.host;
  if (!failure.log_path.empty()) object["log"] = failure.log_path;
  if (failure.log_line > 0) object["log_line"] = failure.log_line;
  if (!failure.evidence.empty()) object["evidence"] = failure.evidence;
  if (!failure.stderr_tail.empty()) object["stderr_tail"] = failure.stderr_tail;
  return object;
}

Json straggler_json(const Straggler& event) {
  Json object{{"event", "straggler"}, {"time_ns", event.time_ns}, {"kind", ddprun::name_of(event.kind)}};
  if (event.rank >= 0) object["rank"] = event.rank;
  object["ended"] = event.ended;
  object["from_step"] = event.from_step;
  object["step"] = event.step;
  object["own_s"] = event.own_s;
  object["others_s"] = event.others_s;
  object["part_s"] = event.part_s;
  if (event.round_trip_s > 0) {
    object["round_trip_s"] = event.round_trip_s;
    object["others_round_trip_s"] = event.others_round_trip_s;
  }
  return object;
}

std::string usage_error_line(std::string_view message) {
  return line_of(Json{{"event", "usage_error"}, {"exit_code", static_cast<int>(ExitCode::kUsage)}, {"message", message}});
}

std::string output_json_line(int rank, Stream stream, std::string_view line) {
  return line_of(
      Json{{"event", "output"}, {"rank", rank}, {"stream", stream == Stream::kStdout ? "stdout" : "stderr"}, {"line", line}});
}

std::string event_json_line(const RunEvent& run_event) {
  const Json line = std::visit(
      Overloaded{
          [](const RunStarted& e) {
            return event("run_started", e.time_ns, {{"world_size", e.world_size}});
          },
          [](const RoundStarted& e) {
            return event("round_started", e.time_ns,
                         {{"round", e.round},
                          {"restart_count", e.restart_count},
                          {"world_size", e.world_size},
                          {"group_rank", e.group_rank},
                          {"nodes", e.nodes},
                          {"regroup", e.regroup}});
          },
          [](const NodesChanged& e) {
            Json object = event(std::string("node_") + notice_keyword(e.notice.kind), e.time_ns, {{"text", e.notice.text}});
            if (e.notice.of > 0) {
              object["count"] = e.notice.count;
              object["of"] = e.notice.of;
            }
            return object;
          },
          [](const CutOff& e) {
            return event(kCutOff, e.time_ns, {{"round", e.round}, {"seconds", e.seconds}, {"message", describe(e)}});
          },
          [](const WorkerStarted& e) {
            return event("worker_started", e.time_ns,
                         {{"rank", e.rank}, {"local_rank", e.local_rank}, {"pid", e.pid}, {"standby", e.standby}});
          },
          [](const WorkerReported& e) {
            Json object = worker_message_json(e.message);
            if (object.is_null()) return object;
            object["rank"] = e.rank;
            object["time_ns"] = e.time_ns;
            return object;
          },
          [](const WorkerEnded& e) {
            Json object = event("worker_ended", e.time_ns, {{"rank", e.rank}, {"pid", e.pid}});
            add_status(object, e.status);
            object["asked_to_stop"] = e.stop_requested;
            return object;
          },
          [](const WorkerContinued& e) {
            return event("worker_continued", e.time_ns, {{"rank", e.rank}, {"stopped_s", e.stopped_s}});
          },
          [](const Straggler& e) {
            Json object = straggler_json(e);
            object["message"] = describe(e);
            return object;
          },
          [](const RoundFailed& e) {
            Json object = event("round_failed", e.time_ns, {{"round", e.round}, {"first_cause", failure_json(e.first)}});
            object["consequences"] = Json::array();
            for (const Failure& failure : e.consequences) object["consequences"].push_back(failure_json(failure));
            object["decision"] = name_of(e.decision);
            object["why"] = e.why;
            return object;
          },
          [](const Regrouped& e) {
            return event("regrouped", e.time_ns,
                         {{"round", e.round},
                          {"step", e.step},
                          {"kept", e.kept},
                          {"replaced", e.replaced},
                          {"by_standby", e.by_standby},
                          {"seconds", e.seconds}});
          },
          [](const RegroupFailed& e) {
            return event("regroup_failed", e.time_ns, {{"round", e.round}, {"why", e.why}});
          },
          [](const StandbyWaits& e) {
            Json object = event("standby_waits", e.time_ns, {{"pid", e.pid}});
            if (e.loaded_s > 0) object["loaded_s"] = e.loaded_s;
            if (e.memory_bytes > 0) object["memory_bytes"] = e.memory_bytes;
            return object;
          },
          [](const StandbyEnded& e) {
            Json object = event("standby_ended", e.time_ns, {{"pid", e.pid}});
            if (e.status) add_status(object, *e.status);
            if (!e.message.empty()) object["message"] = e.message;
            if (e.next_in_s >= 0) object["next_in_s"] = e.next_in_s;
            return object;
          },
          [](const StopRequested& e) {
            return event("stop_requested", e.time_ns,
                         {{"signal", e.signal},
                          {"signal_name", signal_name(e.signal)},
                          {"second", e.effect != StopRequested::Effect::kStops},
                          {"kills", e.effect == StopRequested::Effect::kKills}});
          },
          [](const StopIsSlow& e) {
            Json awaited = Json::array();
            for (const StopIsSlow::Awaited& one : e.awaited) {
              awaited.push_back(Json{{"rank", one.rank}, {"pid", one.pid}, {"look", one.summary}});
            }
            Json object = event("stop_is_slow", e.time_ns, {{"seconds", e.seconds}});
            if (e.first) object["first_cause"] = failure_json(*e.first);
            object["awaited"] = std::move(awaited);
            object["message"] = describe(e);
            return object;
          },
          [](const WorkersLeft& e) {
            return event("workers_left", e.time_ns,
                         {{"seconds", e.seconds}, {"ended", e.ended}, {"running", e.running}, {"message", describe(e)}});
          },
          [](const LeftoversFound& e) {
            const bool awaited = e.what == LeftoversFound::What::kAwaited;
            Json object = event("leftovers", e.time_ns, {{"what", awaited ? "awaited" : "ended"}});
            if (awaited) object["rank"] = e.rank;
            object["processes"] = e.processes;
            object["message"] = describe(e);
            return object;
          },
          [](const HelperIgnored& e) {
            return Json{{"event", "helper_ignored"}, {"rank", e.rank}, {"time_ns", e.time_ns}, {"message", describe(e)}};
          },
          [](const FirstOutput& e) {
            return event("first_output", e.time_ns, {{"rank", e.rank}, {"seconds", e.seconds}});
          },
          [](const InputWasRead& e) {
            return event("input_was_read", e.time_ns, {{"message", e.what}});
          },
          [](const RunDirectoryRemoved& e) {
            return event("run_directory_removed", e.time_ns, {{"path", e.path}});
          },
          [](const RunEnded& e) {
            return event("run_ended", e.time_ns,
                         {{"exit_code", e.exit_code}, {"why", e.why}, {"restarts_used", e.restarts_used}});
          }},
      run_event);
  return line.is_null() ? "" : line_of(line);
}

}  // namespace ddprun
