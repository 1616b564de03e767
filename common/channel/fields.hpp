// The list of the fields of each worker channel message: their names in the frame's JSON, and the struct members. codec.cpp
// walks it in both directions, so writing and reading cannot disagree. --json uses the same names for enum values
// (launcher/events/event_json.cpp).
#pragma once

#include <array>
#include <string_view>

#include "common/channel/message.hpp"

namespace ddprun::channel {

// The names of an enum's values, in their order.
template <class Enum>
struct NamesOf;
template <>
struct NamesOf<Phase> {
  static constexpr std::array<std::string_view, 6> value{"starting", "joining", "running", "saving", "evaluating", "done"};
};
template <>
struct NamesOf<Shrink> {
  static constexpr std::array<std::string_view, 3> value{"unknown", "done", "nothing_left"};
};
template <>
struct NamesOf<Stage> {
  static constexpr std::array<std::string_view, 9> value{"loading",   "forward", "batch_norm", "backward", "loss",
                                                         "optimizer", "meeting", "comparing",  "somewhere"};
};
template <>
struct NamesOf<ErrorKind> {
  static constexpr std::array<std::string_view, 8> value{"exception", "usage",      "out_of_memory", "lost_peer",
                                                         "diverged",  "checkpoint", "corrupt_state", "superseded"};
};
template <>
struct NamesOf<Stop::Mode> {
  static constexpr std::array<std::string_view, 2> value{"save", "now"};
};
template <>
struct NamesOf<StoreRequest::Op> {
  static constexpr std::array<std::string_view, 9> value{"set",         "get",    "try_get", "wait",    "add",
                                                         "compare_set", "delete", "check",   "num_keys"};
};
template <>
struct NamesOf<StoreReply::Status> {
  static constexpr std::array<std::string_view, 4> value{"ok", "timeout", "not_found", "error"};
};

// The text of "type" for each message.
template <class Message>
inline constexpr std::string_view kTypeName = "";
template <>
inline constexpr std::string_view kTypeName<Hello> = "hello";
template <>
inline constexpr std::string_view kTypeName<PhaseChange> = "phase";
template <>
inline constexpr std::string_view kTypeName<Progress> = "progress";
template <>
inline constexpr std::string_view kTypeName<EvalResult> = "eval";
template <>
inline constexpr std::string_view kTypeName<Pace> = "pace";
template <>
inline constexpr std::string_view kTypeName<WorkerError> = "error";
template <>
inline constexpr std::string_view kTypeName<CheckpointPublished> = "checkpoint";
template <>
inline constexpr std::string_view kTypeName<SignalReceived> = "signal";
template <>
inline constexpr std::string_view kTypeName<StopReady> = "stop_ready";
template <>
inline constexpr std::string_view kTypeName<SavesOnStop> = "saves_on_stop";
template <>
inline constexpr std::string_view kTypeName<Regroupable> = "regroupable";
template <>
inline constexpr std::string_view kTypeName<RegroupReady> = "regroup_ready";
template <>
inline constexpr std::string_view kTypeName<GroupFormed> = "regrouped";
template <>
inline constexpr std::string_view kTypeName<StandbyReady> = "standby_ready";
template <>
inline constexpr std::string_view kTypeName<Position> = "position";
template <>
inline constexpr std::string_view kTypeName<StoreRequest> = "store";
template <>
inline constexpr std::string_view kTypeName<Stop> = "stop";
template <>
inline constexpr std::string_view kTypeName<StopAt> = "stop_at";
template <>
inline constexpr std::string_view kTypeName<IgnoreSignal> = "carry";
template <>
inline constexpr std::string_view kTypeName<Regroup> = "regroup";
template <>
inline constexpr std::string_view kTypeName<Hold> = "hold";
template <>
inline constexpr std::string_view kTypeName<AssignRank> = "take_over";
template <>
inline constexpr std::string_view kTypeName<PositionRequest> = "where";
template <>
inline constexpr std::string_view kTypeName<StoreReply> = "store_reply";

// Calls visit(name, member) for each field. It calls visit.keys and visit.blob for fields whose bytes follow the JSON, and
// visit.later for fields that a minor version has added: a missing one is T{}.
template <class Visitor, class Message>
void visit_fields(Visitor& visit, Message& m) {
  using M = std::remove_const_t<Message>;
  if constexpr (std::is_same_v<M, Hello>) {
    visit("protocol", m.protocol);
    visit("version", m.version);
    visit("pid", m.pid);
    visit.later("minor", m.minor);
  } else if constexpr (std::is_same_v<M, PhaseChange>) {
    visit("phase", m.phase);
    visit("step", m.step);
    visit("epoch", m.epoch);
  } else if constexpr (std::is_same_v<M, Progress>) {
    visit("step", m.step);
    visit("steps_total", m.steps_total);
    visit("epoch", m.epoch);
    visit("epochs", m.epochs);
    visit("samples", m.samples);
    visit("loss", m.loss);
    visit("lr", m.lr);
    visit("samples_per_s", m.samples_per_s);
    visit.later("figures", m.figures);
    visit.later("figures_step", m.figures_step);
  } else if constexpr (std::is_same_v<M, EvalResult>) {
    visit("step", m.step);
    visit("epoch", m.epoch);
    visit("figures", m.figures);
    visit("samples", m.samples);
  } else if constexpr (std::is_same_v<M, Pace>) {
    visit("times", m.times);
  } else if constexpr (std::is_same_v<M, WorkerError>) {
    visit("kind", m.kind);
    visit("message", m.message);
    visit("device", m.device);
    visit("step", m.step);
    visit("phase", m.phase);
    visit("bytes_asked", m.bytes_asked);
    visit("bytes_free", m.bytes_free);
    visit("time_ns", m.time_ns);
    visit("fatal", m.fatal);
    visit("exit_code", m.exit_code);
    visit("shrink", m.shrink);
    visit("others_suspect", m.others_suspect);
  } else if constexpr (std::is_same_v<M, CheckpointPublished>) {
    visit("step", m.step);
    visit("path", m.path);
    visit("pause_s", m.pause_s);
    visit("save_s", m.save_s);
    visit("bytes", m.bytes);
  } else if constexpr (std::is_same_v<M, SignalReceived> || std::is_same_v<M, IgnoreSignal>) {
    visit("signal", m.signal);
  } else if constexpr (std::is_same_v<M, StopReady>) {
    visit("started", m.started);
  } else if constexpr (std::is_same_v<M, Position>) {
    visit("phase", m.phase);
    visit("step", m.step);
    visit("stage", m.stage);
  } else if constexpr (std::is_same_v<M, RegroupReady> || std::is_same_v<M, GroupFormed>) {
    visit("generation", m.generation);
    visit("step", m.step);
  } else if constexpr (std::is_same_v<M, Regroup>) {
    visit("generation", m.generation);
    visit("rank", m.rank);
    visit("world_size", m.world_size);
    visit("group_rank", m.group_rank);
    visit("group_world_size", m.group_world_size);
  } else if constexpr (std::is_same_v<M, AssignRank>) {
    visit("rank", m.rank);
    visit("local_rank", m.local_rank);
    visit("restart_count", m.restart_count);
  } else if constexpr (std::is_same_v<M, Regroupable> || std::is_same_v<M, Hold> || std::is_same_v<M, StandbyReady> ||
                       std::is_same_v<M, PositionRequest> || std::is_same_v<M, SavesOnStop>) {
  } else if constexpr (std::is_same_v<M, StoreRequest>) {
    visit("id", m.id);
    visit("op", m.op);
    visit.keys("keys", m.keys);
    visit.blob("value", m.value);
    visit.blob("expected", m.expected);
    visit("amount", m.amount);
    visit("timeout_ms", m.timeout_ms);
  } else if constexpr (std::is_same_v<M, Stop>) {
    visit("mode", m.mode);
    visit("deadline_ms", m.deadline_ms);
    visit("reason", m.reason);
  } else if constexpr (std::is_same_v<M, StopAt>) {
    visit("step", m.step);
  } else {
    static_assert(std::is_same_v<M, StoreReply>);
    visit("id", m.id);
    visit("status", m.status);
    visit.blob("value", m.value);
    visit("number", m.number);
    visit("message", m.message);
  }
}

}  // namespace ddprun::channel
