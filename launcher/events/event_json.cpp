// See event_json.hpp.
#include "launcher/events/event_json.hpp"

#include <cstring>
#include <nlohmann/json.hpp>

#include "common/base/check.hpp"
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

// The enum value's name in the worker channel's protocol.
template <class Enum>
std::string_view name_in_channel(Enum value) {
  constexpr auto& kNames = channel::NamesOf<Enum>::value;
  const auto place = static_cast<std::size_t>(value);
  check(place < kNames.size(), "a worker's message has a value that there is no name for");
  return kNames[place];
}

template <class T>
void add_if(Json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

// A worker's message as JSON; null for messages that only the agent uses (store traffic and the like).
Json spoken(const channel::FromWorker& message) {
  return std::visit(
      Overloaded{[](const channel::Hello& m) {
                   return Json{{"event", "hello"}, {"version", m.version}, {"pid", m.pid}};
                 },
                 [](const channel::PhaseChange& m) {
                   return Json{{"event", "phase"}, {"phase", name_in_channel(m.phase)}, {"step", m.step}, {"epoch", m.epoch}};
                 },
                 [](const channel::Progress& m) {
                   Json object{{"event", "progress"}, {"step", m.step},     {"steps_total", m.steps_total},
                               {"epoch", m.epoch},    {"epochs", m.epochs}, {"samples", m.samples}};
                   add_if(object, "loss", m.loss);
                   add_if(object, "lr", m.lr);
                   add_if(object, "samples_per_s", m.samples_per_s);
                   for (const Figure& figure : m.figures) object["figures"][figure.name] = figure.value;
                   return object;
                 },
                 [](const channel::EvalResult& m) {
                   Json object{{"event", "evaluation"}, {"step", m.step}, {"epoch", m.epoch}};
                   for (const Figure& figure : m.figures) object[figure.name] = figure.value;
                   object["samples"] = m.samples;
                   return object;
                 },
                 [](const channel::WorkerError& m) {
                   Json object{{"event", "error"},
                               {"kind", name_in_channel(m.kind)},
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
                           channel::Regroupable, channel::RegroupReady, channel::GroupFormed, channel::StandbyReady,
                           channel::Position, channel::StoreRequest>{}},
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

std::string event_json_line(const RunEvent& event) {
  return std::visit(
      Overloaded{
          [](const RunStarted& e) {
            return line_of(Json{{"event", "run_started"}, {"time_ns", e.time_ns}, {"world_size", e.world_size}});
          },
          [](const RoundStarted& e) {
            return line_of(Json{{"event", "round_started"},
                                {"time_ns", e.time_ns},
                                {"round", e.round},
                                {"restart_count", e.restart_count},
                                {"world_size", e.world_size},
                                {"group_rank", e.group_rank},
                                {"nodes", e.nodes},
                                {"regroup", e.regroup}});
          },
          [](const NodesChanged& e) {
            Json object{
                {"event", std::string("node_") + notice_word(e.notice.kind)}, {"time_ns", e.time_ns}, {"text", e.notice.text}};
            if (e.notice.of > 0) {
              object["count"] = e.notice.count;
              object["of"] = e.notice.of;
            }
            return line_of(object);
          },
          [](const CutOff& e) {
            return line_of(Json{{"event", kCutOff},
                                {"time_ns", e.time_ns},
                                {"round", e.round},
                                {"seconds", e.seconds},
                                {"message", describe(e)}});
          },
          [](const WorkerStarted& e) {
            return line_of(Json{{"event", "worker_started"},
                                {"time_ns", e.time_ns},
                                {"rank", e.rank},
                                {"local_rank", e.local_rank},
                                {"pid", e.pid},
                                {"standby", e.standby}});
          },
          [](const WorkerSpoke& e) {
            Json object = spoken(e.message);
            if (object.is_null()) return std::string();
            object["rank"] = e.rank;
            object["time_ns"] = e.time_ns;
            return line_of(object);
          },
          [](const WorkerEnded& e) {
            Json object{{"event", "worker_ended"}, {"time_ns", e.time_ns}, {"rank", e.rank}, {"pid", e.pid}};
            add_status(object, e.status);
            object["asked_to_stop"] = e.asked_to_stop;
            return line_of(object);
          },
          [](const WorkerContinued& e) {
            return line_of(
                Json{{"event", "worker_continued"}, {"time_ns", e.time_ns}, {"rank", e.rank}, {"stopped_s", e.stopped_s}});
          },
          [](const Straggler& e) {
            Json object = straggler_json(e);
            object["message"] = describe(e);
            return line_of(object);
          },
          [](const RoundFailed& e) {
            Json object{
                {"event", "round_failed"}, {"time_ns", e.time_ns}, {"round", e.round}, {"first_cause", failure_json(e.first)}};
            object["consequences"] = Json::array();
            for (const Failure& failure : e.consequences) object["consequences"].push_back(failure_json(failure));
            object["decision"] = name_of(e.decision);
            object["why"] = e.why;
            return line_of(object);
          },
          [](const Regrouped& e) {
            return line_of(Json{{"event", "regrouped"},
                                {"time_ns", e.time_ns},
                                {"round", e.round},
                                {"step", e.step},
                                {"kept", e.kept},
                                {"replaced", e.replaced},
                                {"by_standby", e.by_standby},
                                {"seconds", e.seconds}});
          },
          [](const RegroupFailed& e) {
            return line_of(Json{{"event", "regroup_failed"}, {"time_ns", e.time_ns}, {"round", e.round}, {"why", e.why}});
          },
          [](const StandbyWaits& e) {
            Json object{{"event", "standby_waits"}, {"time_ns", e.time_ns}, {"pid", e.pid}};
            if (e.loaded_s > 0) object["loaded_s"] = e.loaded_s;
            if (e.memory_bytes > 0) object["memory_bytes"] = e.memory_bytes;
            return line_of(object);
          },
          [](const StandbyEnded& e) {
            Json object{{"event", "standby_ended"}, {"time_ns", e.time_ns}, {"pid", e.pid}};
            if (e.status) add_status(object, *e.status);
            if (!e.message.empty()) object["message"] = e.message;
            if (e.next_in_s >= 0) object["next_in_s"] = e.next_in_s;
            return line_of(object);
          },
          [](const StopRequested& e) {
            return line_of(Json{{"event", "stop_requested"},
                                {"time_ns", e.time_ns},
                                {"signal", e.signal},
                                {"signal_name", signal_name(e.signal)},
                                {"second", e.effect != StopRequested::Effect::kStops},
                                {"kills", e.effect == StopRequested::Effect::kKills}});
          },
          [](const StopIsSlow& e) {
            Json awaited = Json::array();
            for (const StopIsSlow::Awaited& one : e.awaited) {
              awaited.push_back(Json{{"rank", one.rank}, {"pid", one.pid}, {"look", one.summary}});
            }
            Json object{{"event", "stop_is_slow"}, {"time_ns", e.time_ns}, {"seconds", e.seconds}};
            if (e.first) object["first_cause"] = failure_json(*e.first);
            object["awaited"] = std::move(awaited);
            object["message"] = describe(e);
            return line_of(object);
          },
          [](const WorkersLeft& e) {
            return line_of(Json{{"event", "workers_left"},
                                {"time_ns", e.time_ns},
                                {"seconds", e.seconds},
                                {"ended", e.ended},
                                {"running", e.running},
                                {"message", describe(e)}});
          },
          [](const LeftoversFound& e) {
            const bool awaited = e.what == LeftoversFound::What::kAwaited;
            Json object{{"event", "leftovers"}, {"time_ns", e.time_ns}, {"what", awaited ? "awaited" : "ended"}};
            if (awaited) object["rank"] = e.rank;
            object["processes"] = e.processes;
            object["message"] = describe(e);
            return line_of(object);
          },
          [](const HelperIgnored& e) {
            return line_of(
                Json{{"event", "helper_ignored"}, {"rank", e.rank}, {"time_ns", e.time_ns}, {"message", describe(e)}});
          },
          [](const FirstOutput& e) {
            return line_of(Json{{"event", "first_output"}, {"time_ns", e.time_ns}, {"rank", e.rank}, {"seconds", e.seconds}});
          },
          [](const InputWasRead& e) {
            return line_of(Json{{"event", "input_was_read"}, {"time_ns", e.time_ns}, {"message", e.what}});
          },
          [](const RunDirectoryRemoved& e) {
            return line_of(Json{{"event", "run_directory_removed"}, {"time_ns", e.time_ns}, {"path", e.path}});
          },
          [](const RunEnded& e) {
            return line_of(Json{{"event", "run_ended"},
                                {"time_ns", e.time_ns},
                                {"exit_code", e.exit_code},
                                {"why", e.why},
                                {"restarts_used", e.restarts_used}});
          }},
      event);
}

}  // namespace ddprun
