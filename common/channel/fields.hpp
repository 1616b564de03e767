// The fields of each worker channel message, with their names in the frame's JSON. codec.cpp uses the same list to encode and
// to decode, so the two directions always agree. The output of --json uses the same names for enum values
// (launcher/events/event_json.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "common/base/check.hpp"
#include "common/channel/message.hpp"

namespace ddprun::channel {

// The names of an enum's values, in the order of the enum.
template <class Enum>
inline constexpr std::array<std::string_view, 0> kNames{};
template <>
inline constexpr std::array<std::string_view, 6> kNames<Phase>{"starting", "joining",    "running",
                                                               "saving",   "evaluating", "done"};
template <>
inline constexpr std::array<std::string_view, 3> kNames<Shrink>{"unknown", "done", "nothing_left"};
template <>
inline constexpr std::array<std::string_view, 9> kNames<Stage>{"loading",   "forward", "batch_norm", "backward", "loss",
                                                               "optimizer", "meeting", "comparing",  "somewhere"};
template <>
inline constexpr std::array<std::string_view, 8> kNames<ErrorKind>{"exception", "usage",      "out_of_memory", "lost_peer",
                                                                   "diverged",  "checkpoint", "corrupt_state", "superseded"};
template <>
inline constexpr std::array<std::string_view, 2> kNames<Stop::Mode>{"save", "now"};
template <>
inline constexpr std::array<std::string_view, 9> kNames<StoreRequest::Op>{"set",         "get",    "try_get", "wait",    "add",
                                                                          "compare_set", "delete", "check",   "num_keys"};
template <>
inline constexpr std::array<std::string_view, 4> kNames<StoreReply::Status>{"ok", "timeout", "not_found", "error"};

template <class Enum>
std::string_view protocol_name(Enum value) {
  const auto place = static_cast<std::size_t>(value);
  check(place < kNames<Enum>.size(), "a message has a value without a name");
  return kNames<Enum>[place];
}

// The values of the JSON field "type", in the order of the variant's messages.
template <class Variant>
inline constexpr std::array<std::string_view, 0> kTypeNames{};
template <>
inline constexpr std::array<std::string_view, std::variant_size_v<FromWorker>> kTypeNames<FromWorker>{
    "hello",      "phase",         "progress",    "eval",          "pace",      "error",         "checkpoint", "signal",
    "stop_ready", "saves_on_stop", "regroupable", "regroup_ready", "regrouped", "standby_ready", "position",   "store"};
template <>
inline constexpr std::array<std::string_view, std::variant_size_v<FromAgent>> kTypeNames<FromAgent>{
    "stop", "stop_at", "carry", "regroup", "hold", "take_over", "where", "store_reply"};
static_assert(!kTypeNames<FromWorker>.back().empty() && !kTypeNames<FromAgent>.back().empty(), "a message has no name");

template <class Value>
struct NamedField {
  const char* name;
  Value& value;
};
template <class Value>
NamedField<Value> named(const char* name, Value& value) {
  return {name, value};
}
template <class Visitor, class... Values>
void visit_each(Visitor& visit, NamedField<Values>... fields) {
  (visit(fields.name, fields.value), ...);
}

// The field's name in the JSON is the name of the struct member.
#define FIELD(member) named(#member, m.member)

// Visits the fields of a message in order, with visit(name, member). Fields whose bytes follow the JSON use visit.keys and
// visit.blob. Fields that a minor version has added use visit.later: if the message lacks the field, its value is T{}.
template <class Visitor, class Message>
void visit_fields(Visitor& visit, Message& m) {
  using M = std::remove_const_t<Message>;
  if constexpr (std::is_same_v<M, Hello>) {
    visit_each(visit, FIELD(protocol), FIELD(version), FIELD(pid));
    visit.later("minor", m.minor);
  } else if constexpr (std::is_same_v<M, PhaseChange>) {
    visit_each(visit, FIELD(phase), FIELD(step), FIELD(epoch));
  } else if constexpr (std::is_same_v<M, Progress>) {
    visit_each(visit, FIELD(step), FIELD(steps_total), FIELD(epoch), FIELD(epochs), FIELD(samples), FIELD(loss), FIELD(lr),
               FIELD(samples_per_s));
    visit.later("figures", m.figures);
    visit.later("figures_step", m.figures_step);
  } else if constexpr (std::is_same_v<M, EvalResult>) {
    visit_each(visit, FIELD(step), FIELD(epoch), FIELD(figures), FIELD(samples));
  } else if constexpr (std::is_same_v<M, Pace>) {
    visit_each(visit, FIELD(times));
  } else if constexpr (std::is_same_v<M, WorkerError>) {
    visit_each(visit, FIELD(kind), FIELD(message), FIELD(device), FIELD(step), FIELD(phase), FIELD(bytes_asked),
               FIELD(bytes_free), FIELD(time_ns), FIELD(fatal), FIELD(exit_code), FIELD(shrink), FIELD(others_suspect));
  } else if constexpr (std::is_same_v<M, CheckpointPublished>) {
    visit_each(visit, FIELD(step), FIELD(path), FIELD(pause_s), FIELD(save_s), FIELD(bytes));
  } else if constexpr (std::is_same_v<M, SignalReceived> || std::is_same_v<M, IgnoreSignal>) {
    visit_each(visit, FIELD(signal));
  } else if constexpr (std::is_same_v<M, StopReady>) {
    visit_each(visit, FIELD(started));
  } else if constexpr (std::is_same_v<M, Position>) {
    visit_each(visit, FIELD(phase), FIELD(step), FIELD(stage));
  } else if constexpr (std::is_same_v<M, RegroupReady> || std::is_same_v<M, GroupFormed>) {
    visit_each(visit, FIELD(generation), FIELD(step));
  } else if constexpr (std::is_same_v<M, Regroup>) {
    visit_each(visit, FIELD(generation), FIELD(rank), FIELD(world_size), FIELD(group_rank), FIELD(group_world_size));
  } else if constexpr (std::is_same_v<M, AssignRank>) {
    visit_each(visit, FIELD(rank), FIELD(local_rank), FIELD(restart_count));
  } else if constexpr (std::is_same_v<M, Regroupable> || std::is_same_v<M, Hold> || std::is_same_v<M, StandbyReady> ||
                       std::is_same_v<M, PositionRequest> || std::is_same_v<M, SavesOnStop>) {
  } else if constexpr (std::is_same_v<M, StoreRequest>) {
    visit_each(visit, FIELD(id), FIELD(op));
    visit.keys("keys", m.keys);
    visit.blob("value", m.value);
    visit.blob("expected", m.expected);
    visit_each(visit, FIELD(amount), FIELD(timeout_ms));
  } else if constexpr (std::is_same_v<M, Stop>) {
    visit_each(visit, FIELD(mode), FIELD(deadline_ms), FIELD(reason));
  } else if constexpr (std::is_same_v<M, StopAt>) {
    visit_each(visit, FIELD(step));
  } else {
    static_assert(std::is_same_v<M, StoreReply>);
    visit_each(visit, FIELD(id), FIELD(status));
    visit.blob("value", m.value);
    visit_each(visit, FIELD(number), FIELD(message));
  }
}

#undef FIELD

}  // namespace ddprun::channel
