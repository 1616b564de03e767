// The list of the fields of each rendezvous message, in the order of the wire. codec.cpp walks it in both directions, so
// writing and reading cannot disagree. Internal to the codec. A change of the order needs a new kProtocolVersion.
#pragma once

#include <type_traits>

#include "common/channel/codec.hpp"
#include "common/failure/restart_history.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/wire/codec.hpp"

namespace ddprun::rendezvous {

// The last value of each enum on the wire.
template <class Enum>
inline constexpr Enum kLast{};
template <>
inline constexpr Workers kLast<Workers> = Workers::kDone;
template <>
inline constexpr Arbiter kLast<Arbiter> = Arbiter::kEtcd;
template <>
inline constexpr Cause kLast<Cause> = kLastCause;
template <>
inline constexpr Refusal kLast<Refusal> = Refusal::kSetAside;
template <>
inline constexpr OverReason kLast<OverReason> = OverReason::kMembershipChange;
template <>
inline constexpr channel::Shrink kLast<channel::Shrink> = channel::Shrink::kNothingLeft;
template <>
inline constexpr channel::StoreRequest::Op kLast<channel::StoreRequest::Op> = channel::StoreRequest::Op::kNumKeys;
template <>
inline constexpr channel::StoreReply::Status kLast<channel::StoreReply::Status> = channel::StoreReply::Status::kError;

// Calls visit(name, member) for numbers, enums and structs, visit.bytes for texts that must fit their limit, and visit.text for
// texts that may be cut.
template <class Visitor, class Message>
void visit_fields(Visitor& visit, Message& m) {
  using M = std::remove_const_t<Message>;
  if constexpr (std::is_same_v<M, Address>) {
    visit.bytes("host", m.host, kMaxHostBytes);
    visit("port", m.port);
  } else if constexpr (std::is_same_v<M, RoundId>) {
    visit("term", m.term);
    visit("round", m.round);
  } else if constexpr (std::is_same_v<M, Config>) {
    visit("id", m.id);
    visit("born", m.born);
    visit("nodes", m.nodes);
    visit("rank", m.rank);
    visit("arbiter", m.arbiter);
    visit("founder", m.founder);
  } else if constexpr (std::is_same_v<M, Budget>) {
    visit("restart_count", m.restart_count);
    visit("history", m.history);
    visit("first_number", m.first_number);
  } else if constexpr (std::is_same_v<M, RestartHistory>) {
    visit("used", m.used);
    visit("by_cause", m.by_cause);
    visit.list("rounds", m.rounds);
  } else if constexpr (std::is_same_v<M, FailedRound>) {
    visit("cause", m.cause);
    visit("rank", m.rank);
    visit("status", m.status);
    visit("step", m.step);
    visit("resumed_from", m.resumed_from);
    visit("newest_checkpoint", m.newest_checkpoint);
    visit("lasted", m.lasted);
    visit("memory_asked", m.memory_asked);
    visit("shrink", m.shrink);
  } else if constexpr (std::is_same_v<M, ExitStatus>) {
    visit("code", m.code);
    visit("signal", m.signal);
    visit("core_dumped", m.core_dumped);
  } else if constexpr (std::is_same_v<M, PersistentState>) {
    visit("promised_term", m.promised_term);
    visit("current", m.current);
    visit("previous", m.previous);
    visit("budget", m.budget);
  } else if constexpr (std::is_same_v<M, Ending>) {
    visit("origin", m.origin);
    visit("exit_code", m.exit_code);
    visit.text("why", m.why, kMaxTextBytes);
  } else if constexpr (std::is_same_v<M, Hello>) {
    visit("protocol", m.protocol);
    if (m.protocol != kProtocolVersion) return visit.skip_rest();
    visit("node", m.node);
    visit("incarnation", m.incarnation);
    visit("attempt", m.attempt);
    visit("run", m.run);
    visit("wanted_group_rank", m.wanted_group_rank);
    visit.bytes("role", m.role, kMaxRoleBytes);
    visit("local_world_size", m.local_world_size);
    visit.text("hostname", m.hostname, kMaxHostBytes);
    visit("listens", m.listens);
    visit("master_port", m.master_port);
    visit("next_number", m.next_number);
    visit("farewell_port", m.farewell_port);
    visit("farewell_key", m.farewell_key);
    visit("arbiter", m.arbiter);
    visit("run_directory", m.run_directory);
    visit("command", m.command);
    visit("min_nodes", m.min_nodes);
    visit("max_nodes", m.max_nodes);
    visit("coordinates", m.coordinates);
    visit("workers", m.workers);
    visit("workers_round", m.workers_round);
    visit("failed", m.failed);
    visit("standing", m.state);
    visit("ending", m.ending);
  } else if constexpr (std::is_same_v<M, Ready>) {
    visit("round", m.round);
    visit("master_port", m.master_port);
    visit("installed", m.installed);
  } else if constexpr (std::is_same_v<M, FailureReport>) {
    visit("round", m.round);
    visit.text("hostname", m.hostname, kMaxHostBytes);
    visit("failed", m.failed);
    visit("time_ns", m.time_ns);
    visit("skew_ns", m.skew_ns);
    visit.text("message", m.message, kMaxTextBytes);
    visit("others_stay", m.others_stay);
  } else if constexpr (std::is_same_v<M, Done> || std::is_same_v<M, MayLeave>) {
    visit("round", m.round);
  } else if constexpr (std::is_same_v<M, StopAsk>) {
    visit("signal", m.signal);
    visit("saves", m.saves);
  } else if constexpr (std::is_same_v<M, StopReady>) {
    visit("round", m.round);
    visit("started", m.started);
  } else if constexpr (std::is_same_v<M, Stopped>) {
    visit("round", m.round);
    visit("saved", m.saved);
    visit("holds", m.holds);
  } else if constexpr (std::is_same_v<M, Leave>) {
    visit.text("why", m.why, kMaxTextBytes);
  } else if constexpr (std::is_same_v<M, Ping>) {
    visit("stamp", m.stamp);
    visit("echo", m.echo);
    visit("realtime_ns", m.realtime_ns);
    visit("installed", m.installed);
    visit("received", m.received);
  } else if constexpr (std::is_same_v<M, Vote>) {
    visit("term", m.term);
    visit("promised_term", m.promised_term);
    visit("echo", m.echo);
  } else if constexpr (std::is_same_v<M, Concluded>) {
    visit("origin", m.origin);
  } else if constexpr (std::is_same_v<M, JobQuestion>) {
    visit("number", m.number);
    visit("most_bytes", m.most_bytes);
    visit.bytes("text", m.text, kMaxQuestionBytes);
    visit("to", m.to);
  } else if constexpr (std::is_same_v<M, NodeAnswer>) {
    visit("asker", m.asker);
    visit("number", m.number);
    visit.bytes("text", m.text, kMaxAnswerBytes);
  } else if constexpr (std::is_same_v<M, NodeQuestion>) {
    visit("asker", m.asker);
    visit("number", m.number);
    visit("most_bytes", m.most_bytes);
    visit.bytes("text", m.text, kMaxQuestionBytes);
  } else if constexpr (std::is_same_v<M, JobAnswer>) {
    visit("number", m.number);
    visit("nodes", m.nodes);
    visit("node", m.node);
    visit.bytes("text", m.text, kMaxAnswerBytes);
  } else if constexpr (std::is_same_v<M, StoreAsk>) {
    visit("round", m.round);
    visit("rank", m.rank);
    visit("id", m.request.id);
    visit("op", m.request.op);
    visit.list("keys", m.request.keys);
    visit.bytes("value", m.request.value, channel::kMaxValueBytes);
    visit.bytes("expected", m.request.expected, channel::kMaxValueBytes);
    visit("amount", m.request.amount);
    visit("timeout_ms", m.request.timeout_ms);
  } else if constexpr (std::is_same_v<M, Welcome>) {
    visit("term", m.term);
    visit("coordinator", m.coordinator);
    visit("lease_ms", m.lease_ms);
    visit("stamp", m.stamp);
  } else if constexpr (std::is_same_v<M, Refused>) {
    visit("protocol", m.protocol);
    visit("reason", m.reason);
    visit.text("text", m.text, kMaxTextBytes);
    if (m.protocol != kProtocolVersion) return visit.skip_rest();
    visit("retry_after_ms", m.retry_after_ms);
  } else if constexpr (std::is_same_v<M, Redirect>) {
    visit("term", m.term);
    visit("coordinator", m.coordinator);
  } else if constexpr (std::is_same_v<M, Successor>) {
    visit("group_rank", m.group_rank);
    visit("node", m.node);
    visit("address", m.address);
  } else if constexpr (std::is_same_v<M, Release>) {
    visit("id", m.id);
    visit("born", m.born);
    visit("start", m.start);
    visit("group_rank", m.group_rank);
    visit("nodes", m.nodes);
    visit("arbiter", m.arbiter);
    visit("founder", m.founder);
    visit("previous", m.previous);
    visit("rank_offset", m.rank_offset);
    visit("world_size", m.world_size);
    visit("role_rank_offset", m.role_rank_offset);
    visit("role_world_size", m.role_world_size);
    visit("master", m.master);
    visit("budget", m.budget);
    visit("max_restarts", m.max_restarts);
    visit("coordinator", m.coordinator);
    visit.list("successors", m.successors);
  } else if constexpr (std::is_same_v<M, RoundOver>) {
    visit("round", m.round);
    visit("reason", m.reason);
    visit.text("why", m.why, kMaxTextBytes);
    visit("failure", m.failure);
    visit("hold", m.hold);
  } else if constexpr (std::is_same_v<M, StopAndSave>) {
    visit("round", m.round);
    visit("signal", m.signal);
    visit("goes_on", m.goes_on);
    visit("held", m.held);
  } else if constexpr (std::is_same_v<M, StopAt>) {
    visit("round", m.round);
    visit("step", m.step);
  } else if constexpr (std::is_same_v<M, HandOver>) {
    visit("node", m.node);
    visit("to", m.to);
    visit("standing", m.state);
  } else if constexpr (std::is_same_v<M, Conclude>) {
    visit("ending", m.ending);
  } else if constexpr (std::is_same_v<M, Waiting>) {
    visit.text("text", m.text, kMaxTextBytes);
  } else if constexpr (std::is_same_v<M, JobOver>) {
    visit("round", m.round);
    visit("exit_code", m.exit_code);
    visit.text("why", m.why, kMaxTextBytes);
    visit("ended_ms_ago", m.ended_ms_ago);
  } else if constexpr (std::is_same_v<M, Pong>) {
    visit("echo", m.echo);
    visit("stamp", m.stamp);
    visit("realtime_ns", m.realtime_ns);
    visit("grant_ns", m.grant_ns);
    visit("committed", m.committed);
    visit("received", m.received);
  } else if constexpr (std::is_same_v<M, VoteRequest>) {
    visit("term", m.term);
    visit("candidate", m.candidate);
    visit("stamp", m.stamp);
  } else if constexpr (std::is_same_v<M, Resume>) {
    visit("node", m.node);
    visit("incarnation", m.incarnation);
    visit("attempt", m.attempt);
    visit("received", m.received);
  } else if constexpr (std::is_same_v<M, Received>) {
    visit("count", m.count);
  } else if constexpr (std::is_same_v<M, Resumed>) {
    visit("received", m.received);
  } else {
    static_assert(std::is_same_v<M, StoreAnswer>);
    visit("round", m.round);
    visit("rank", m.rank);
    visit("id", m.reply.id);
    visit("status", m.reply.status);
    visit.bytes("value", m.reply.value, channel::kMaxValueBytes);
    visit("number", m.reply.number);
    visit.text("message", m.reply.message, kMaxTextBytes);
  }
}

}  // namespace ddprun::rendezvous
