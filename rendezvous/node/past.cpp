// Implementation of past.hpp.
#include "rendezvous/node/past.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace ddprun::rendezvous {
namespace {

void add_places(const Record& record, Memory& memory) {
  memory.places.push_back(record.coordinator.address);
  for (const Successor& node : record.successors) memory.places.push_back(node.address);
}

// A node that has left comes back under a new identity. That loses nothing if it never promised anything.
Memory usable(Memory memory) {
  if (!memory.self || memory.self->record.knows_round() || !memory.self->record.job_elsewhere) return memory;
  Memory lost{.self = {}, .job_elsewhere = true, .places = memory.places, .kept = memory.kept};
  add_places(memory.self->record, lost);
  return lost;
}

}  // namespace

Past::Past(Memory memory, bool alone, const Rules& rules)
    : memory_(usable(std::move(memory))),
      alone_(alone),
      rules_(rules),
      remembers_(memory_.self && memory_.self->record.knows_round()) {}

Record Past::record() const {
  return memory_.self ? memory_.self->record : Record{.job_elsewhere = memory_.job_elsewhere, .place_is_new = !memory_.kept};
}

std::optional<Time> Past::may_give_up_at(Time now, nanoseconds lease) const {
  if (!remembers_) return std::nullopt;
  if (alone_) return now;
  if (!rules_.gives_up || !met_) return std::nullopt;
  const Time looked = *met_ + kLookForOldJob;
  return voted_ ? std::max(looked, *voted_ + kElectionTakes * lease) : looked;
}

Record Past::give_up(const Record& record) {
  remembers_ = false;
  add_places(record, memory_);
  return Record{.job_elsewhere = rules_.lost_job_is_remembered, .place_is_new = record.place_is_new};
}

NodeNotice Past::waits_for(const Record& record, std::int64_t here, std::int64_t needed) const {
  return {.kind = NodeNotice::Kind::kWaiting,
          .text = "for nodes: an earlier start of this job had " + std::to_string(record.state.current.nodes) +
                  ", and may still run on those that are not here (--force-new-job: it does not)",
          .count = here,
          .of = needed};
}

FirstRound Past::first_round(const Record& record, const CoordinatorSettings& settings, Time now) const {
  const bool elsewhere = record.job_elsewhere || record.knows_round();
  if (alone_ || (!elsewhere && !record.place_is_new) || !rules_.first_round_is_alone) return {};
  FirstRound first{.nodes = std::max(settings.min_nodes, settings.max_nodes - settings.min_nodes + 1)};
  // A coordinator dials the job's first address once per lease.
  if (!elsewhere) first.alone_after = now + part_of(settings.lease, rules_.vote_after);
  return first;
}

std::uint64_t Past::first_term(const Record& record, std::uint64_t incarnation) const {
  const std::uint64_t next = record.state.promised_term + 1;
  const std::uint64_t clock = incarnation >> 20U;
  if (record.job_elsewhere) return next + clock;
  return record.place_is_new ? std::max(next, 1 + clock) : next;  // an earlier one that asked has promised what its clock said
}

std::optional<Record> Past::end(const member_action::JobOver& over, const Record& record, bool leads) {
  using End = member_action::JobOver::End;
  const bool nobody_came = leads && !record.knows_round();
  const bool may_run = record.job_elsewhere || record.knows_round();
  forgets_ = !may_run || (over.end == End::kOver && !nobody_came);
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
