// Lists the fields of each rendezvous message in their order on the wire. codec.cpp uses the same list to encode and to
// decode, so the two directions always agree. Only the codec includes this file. A change of the order needs a new
// kProtocolVersion.
#pragma once

#include <type_traits>

#include "common/channel/codec.hpp"
#include "common/failure/restart_history.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/wire/codec.hpp"

namespace ddprun::rendezvous {

// The last value of each enum that is sent in messages. The decoder rejects larger values.
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

// Visits the fields of a message in order. Numbers, enums and structs use visit(members...). Texts that must not exceed their
// limit use visit.bytes, and texts that may be truncated use visit.text.
template <class Visitor, class Message>
void visit_fields(Visitor& visit, Message& m) {
  using M = std::remove_const_t<Message>;
  if constexpr (std::is_same_v<M, Address>) {
    visit.bytes(m.host, kMaxHostBytes);
    visit(m.port);
  } else if constexpr (std::is_same_v<M, RoundId>) {
    visit(m.term, m.round);
  } else if constexpr (std::is_same_v<M, Config>) {
    visit(m.id, m.born, m.nodes, m.rank, m.arbiter, m.founder);
  } else if constexpr (std::is_same_v<M, Budget>) {
    visit(m.restart_count, m.history, m.first_number);
  } else if constexpr (std::is_same_v<M, RestartHistory>) {
    visit(m.used, m.by_cause);
    visit.list(m.rounds);
  } else if constexpr (std::is_same_v<M, FailedRound>) {
    visit(m.cause, m.rank, m.status, m.step, m.resumed_from, m.newest_checkpoint, m.lasted, m.memory_requested, m.shrink);
  } else if constexpr (std::is_same_v<M, ExitStatus>) {
    visit(m.code, m.signal, m.core_dumped);
  } else if constexpr (std::is_same_v<M, PersistentState>) {
    visit(m.promised_term, m.current, m.previous, m.budget);
  } else if constexpr (std::is_same_v<M, Ending>) {
    visit(m.origin, m.exit_code);
    visit.text(m.why, kMaxTextBytes);
  } else if constexpr (std::is_same_v<M, Hello>) {
    visit(m.protocol);
    if (m.protocol != kProtocolVersion) return visit.skip_rest();
    visit(m.node, m.incarnation, m.attempt, m.run, m.wanted_group_rank);
    visit.bytes(m.role, kMaxRoleBytes);
    visit(m.local_world_size);
    visit.text(m.hostname, kMaxHostBytes);
    visit(m.listens, m.master_port, m.next_number, m.death_notice_port, m.death_notice_key, m.arbiter, m.run_directory,
          m.command, m.min_nodes, m.max_nodes, m.coordinates, m.workers, m.workers_round, m.failed, m.state, m.ending);
  } else if constexpr (std::is_same_v<M, Ready>) {
    visit(m.round, m.master_port, m.installed);
  } else if constexpr (std::is_same_v<M, FailureReport>) {
    visit(m.round);
    visit.text(m.hostname, kMaxHostBytes);
    visit(m.failed, m.time_ns, m.skew_ns);
    visit.text(m.message, kMaxTextBytes);
    visit(m.others_stay);
  } else if constexpr (std::is_same_v<M, Done> || std::is_same_v<M, MayLeave>) {
    visit(m.round);
  } else if constexpr (std::is_same_v<M, StopRequest>) {
    visit(m.signal, m.saves);
  } else if constexpr (std::is_same_v<M, StopReady>) {
    visit(m.round, m.started);
  } else if constexpr (std::is_same_v<M, Stopped>) {
    visit(m.round, m.saved, m.holds);
  } else if constexpr (std::is_same_v<M, Leave>) {
    visit.text(m.why, kMaxTextBytes);
  } else if constexpr (std::is_same_v<M, Ping>) {
    visit(m.stamp, m.echo, m.realtime_ns, m.installed, m.received);
  } else if constexpr (std::is_same_v<M, Vote>) {
    visit(m.term, m.promised_term, m.echo);
  } else if constexpr (std::is_same_v<M, EndAccepted>) {
    visit(m.origin);
  } else if constexpr (std::is_same_v<M, ClusterQuery>) {
    visit(m.number, m.max_bytes);
    visit.bytes(m.text, kMaxQueryBytes);
    visit(m.to);
  } else if constexpr (std::is_same_v<M, NodeAnswer>) {
    visit(m.requester, m.number);
    visit.bytes(m.text, kMaxAnswerBytes);
  } else if constexpr (std::is_same_v<M, NodeQuery>) {
    visit(m.requester, m.number, m.max_bytes);
    visit.bytes(m.text, kMaxQueryBytes);
  } else if constexpr (std::is_same_v<M, JobAnswer>) {
    visit(m.number, m.nodes, m.node);
    visit.bytes(m.text, kMaxAnswerBytes);
  } else if constexpr (std::is_same_v<M, StoreQuery>) {
    visit(m.round, m.rank, m.request.id, m.request.op);
    visit.list(m.request.keys);
    visit.bytes(m.request.value, channel::kMaxValueBytes);
    visit.bytes(m.request.expected, channel::kMaxValueBytes);
    visit(m.request.amount, m.request.timeout_ms);
  } else if constexpr (std::is_same_v<M, Welcome>) {
    visit(m.term, m.coordinator, m.lease_ms, m.stamp);
    visit.text(m.hostname, kMaxHostBytes);
  } else if constexpr (std::is_same_v<M, Refused>) {
    visit(m.protocol, m.reason);
    visit.text(m.text, kMaxTextBytes);
    if (m.protocol != kProtocolVersion) return visit.skip_rest();
    visit(m.retry_after_ms);
  } else if constexpr (std::is_same_v<M, Redirect>) {
    visit(m.term, m.coordinator);
  } else if constexpr (std::is_same_v<M, Successor>) {
    visit(m.group_rank, m.node, m.address);
  } else if constexpr (std::is_same_v<M, Release>) {
    visit(m.id, m.born, m.start, m.group_rank, m.nodes, m.arbiter, m.founder, m.previous, m.rank_offset, m.world_size,
          m.role_rank_offset, m.role_world_size, m.master, m.budget, m.max_restarts, m.coordinator);
    visit.list(m.successors);
  } else if constexpr (std::is_same_v<M, RoundOver>) {
    visit(m.round, m.reason);
    visit.text(m.why, kMaxTextBytes);
    visit(m.failure, m.hold);
  } else if constexpr (std::is_same_v<M, StopAndSave>) {
    visit(m.round, m.signal, m.continues, m.held);
  } else if constexpr (std::is_same_v<M, StopAt>) {
    visit(m.round, m.step);
  } else if constexpr (std::is_same_v<M, TransferLeadership>) {
    visit(m.node, m.to, m.state);
  } else if constexpr (std::is_same_v<M, ProposeEnd>) {
    visit(m.ending);
  } else if constexpr (std::is_same_v<M, Waiting>) {
    visit.text(m.text, kMaxTextBytes);
  } else if constexpr (std::is_same_v<M, JobOver>) {
    visit(m.round, m.exit_code);
    visit.text(m.why, kMaxTextBytes);
    visit(m.ended_ms_ago);
  } else if constexpr (std::is_same_v<M, Pong>) {
    visit(m.echo, m.stamp, m.realtime_ns, m.grant_ns, m.committed, m.received);
  } else if constexpr (std::is_same_v<M, VoteRequest>) {
    visit(m.term, m.candidate, m.stamp);
  } else if constexpr (std::is_same_v<M, Resume>) {
    visit(m.session.node, m.session.incarnation, m.session.attempt, m.received);
  } else if constexpr (std::is_same_v<M, Received>) {
    visit(m.count);
  } else if constexpr (std::is_same_v<M, Resumed>) {
    visit(m.received);
  } else {
    static_assert(std::is_same_v<M, StoreAnswer>);
    visit(m.round, m.rank, m.reply.id, m.reply.status);
    visit.bytes(m.reply.value, channel::kMaxValueBytes);
    visit(m.reply.number);
    visit.text(m.reply.message, kMaxTextBytes);
  }
}

}  // namespace ddprun::rendezvous
