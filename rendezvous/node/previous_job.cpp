#include "rendezvous/node/previous_job.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace ddprun::rendezvous {
namespace {

void add_addresses(const Record& record, RestoredState& restored) {
  restored.addresses.push_back(record.coordinator.address);
  for (const Successor& node : record.successors) restored.addresses.push_back(node.address);
}

// Returns the part of the restored state that this process can use. If the earlier process has left the job, its record
// contains only the fact that the job might still be running elsewhere. In this case the old node id has made no promises, so
// this process uses a new node id.
RestoredState usable(RestoredState restored) {
  if (!restored.self || restored.self->record.knows_round() || !restored.self->record.job_elsewhere) return restored;
  RestoredState lost{.self = {}, .job_elsewhere = true, .addresses = restored.addresses, .had_storage = restored.had_storage};
  add_addresses(restored.self->record, lost);
  return lost;
}

}  // namespace

PreviousJob::PreviousJob(RestoredState restored, bool alone, const Rules& rules)
    : restored_state_(usable(std::move(restored))),
      alone_(alone),
      rules_(rules),
      remembers_(restored_state_.self && restored_state_.self->record.knows_round()) {}

Record PreviousJob::record() const {
  return restored_state_.self
             ? restored_state_.self->record
             : Record{.job_elsewhere = restored_state_.job_elsewhere, .place_is_new = !restored_state_.had_storage};
}

std::optional<Time> PreviousJob::may_give_up_at(Time now, nanoseconds lease) const {
  if (!remembers_) return std::nullopt;
  if (alone_) return now;
  if (!rules_.abandons_old_identity || !met_) return std::nullopt;
  const Time search_end = *met_ + kOldJobSearch;
  return voted_ ? std::max(search_end, *voted_ + kElectionTakes * lease) : search_end;
}

Record PreviousJob::give_up(const Record& record) {
  remembers_ = false;
  add_addresses(record, restored_state_);
  return Record{.job_elsewhere = rules_.lost_job_is_remembered, .place_is_new = record.place_is_new};
}

NodeNotice PreviousJob::waits_for(const Record& record, std::int64_t connected, std::int64_t needed) const {
  return {.kind = NodeNotice::Kind::kWaiting,
          .text = "for nodes: an earlier start of this job had " + std::to_string(record.state.current.nodes) +
                  " nodes and may still be running on the missing ones (if not, use --force-new-job)",
          .count = connected,
          .of = needed};
}

FirstRound PreviousJob::first_round(const Record& record, const CoordinatorSettings& settings, Time now) const {
  const bool elsewhere = record.job_elsewhere || record.knows_round();
  if (alone_ || (!elsewhere && !record.place_is_new) || !rules_.first_round_is_exclusive) return {};
  FirstRound first{.nodes = std::max(settings.min_nodes, settings.max_nodes - settings.min_nodes + 1)};
  // A coordinator elsewhere would dial the job's first address once per lease. If no coordinator has dialed by this time, none
  // exists.
  if (!elsewhere) first.alone_after = now + part_of(settings.lease, rules_.vote_after);
  return first;
}

std::uint64_t PreviousJob::first_term(const Record& record, std::uint64_t incarnation) const {
  const std::uint64_t next = record.state.promised_term + 1;
  const std::uint64_t clock = incarnation >> 20U;
  if (record.job_elsewhere) return next + clock;
  // An earlier process on this machine may have promised a term that was derived from the clock. So this term must be larger.
  return record.place_is_new ? std::max(next, 1 + clock) : next;
}

std::optional<Record> PreviousJob::end(const node_action::Finish& over, const Record& record, bool leads) {
  using End = node_action::Finish::End;
  const bool no_node_joined = leads && !record.knows_round();
  const bool may_run = record.job_elsewhere || record.knows_round();
  forgets_ = !may_run || (over.end == End::kOver && !no_node_joined);
  if (forgets_ || over.end != End::kLeft) return std::nullopt;
  if (!rules_.lost_job_is_remembered) {
    forgets_ = true;
    return std::nullopt;
  }
  Record left = record;
  left.state = {};
  left.roster = {};
  left.job_elsewhere = true;
  return left;
}

}  // namespace ddprun::rendezvous
