// The rules that prevent two rounds of one job at the same time, each as a named value. Programs always use the defaults.
// Tests of the simulator break one rule at a time, and check that the simulator then finds a failure. If the absence of a rule
// causes no failure, the rule does not belong in this file.
//
// Times are fractions of the lease L, which is 5 s by default. We assume that a node's clock rate is wrong by at most 10 %. If
// one node stops an action after L on its clock, at most 1.111 L of true time have passed. If another node waits for 1.25 L on
// its clock, at least 1.136 L have passed. So the first node always stops before the second node starts.
#pragma once

#include <cstddef>

#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

struct Rules {
  // ---- times, in leases ----
  //
  // After the coordinator has answered a ping, the workers may run for this long from the time of that ping. This value is so
  // much smaller than give_up that wrong clock rates do not matter. So the workers of a silent member have ended before the
  // other nodes continue without it.
  double grant = 0.8;
  // workers start only if the remaining time of the grant is at least this fraction of a lease
  double min_grant_to_start = 0.3;
  double give_up = 1.0;  // a member that is silent for this long counts as lost
  // The coordinator may lead for this long after it sent the newest stamp that a majority of nodes has returned
  // (leader_lease.hpp).
  double authority = 1.0;
  // election timeout: a node does not vote until this much time has passed since its coordinator's last message
  double vote_after = 1.25;
  // A node that has voted for another candidate waits this long before it becomes a candidate itself. The wait is long enough
  // for two round trips, in which the other candidate can win. Raft does the same: a server that grants its vote restarts its
  // election timeout. Without the wait, nodes with slow links replaced each winner by a candidate with a later term.
  double voter_backoff = 0.4;
  // A session may be resumed for this long after its connection was reset, but never for longer than one second. This time is
  // shorter than give_up, so no lease depends on it.
  double resume = 0.2;
  bool grant_ends_workers = true;
  bool grants_need_majority = true;

  // ---- which node may lead ----
  bool majority_needed = true;
  bool half_needs_rank_0 = true;     // exactly half of the nodes is a majority only if it includes rank 0
  bool rank_0_needs_arbiter = true;  // with an arbiter, rank 0 alone is not a majority
  // the node with the arbiter's vote waits until the other node's grants and lease have expired
  bool arbiter_winner_waits = true;
  bool arbiter_vote_is_exclusive = true;  // a node that did not get the arbiter's vote must not count it
  bool one_vote_per_term = true;
  bool both_rounds_until_committed = true;
  bool commit_before_change = true;          // the next round starts only after a majority has installed the current round
  bool inherited_rounds_are_renewed = true;  // a new coordinator starts an inherited round again under its own term
  bool coordinator_remembers_members = true;
  bool step_down_revokes_notice = true;    // a coordinator that steps down cancels its guardian's death notice before it votes
  bool transfers_wait_for_workers = true;  // a leadership transfer waits until no worker runs under the old grants
  bool coordinators_announce = true;       // a coordinator connects to the addresses at which nodes may search for it
  // if another copy of the job might be running, an unelected coordinator starts no round until no other round can be running
  bool first_round_is_exclusive = true;
  bool abandons_old_identity = true;  // a node uses a new node id if it does not find the job in its record
  // a restarted node assumes that its earlier job might still be running elsewhere
  bool lost_job_is_remembered = true;

  // ---- rounds ----
  bool wait_for_ready = true;    // the next round starts only after the workers of the previous round have ended
  bool holes_are_filled = true;  // the group ranks of a round are 0..n-1
  bool budget_is_inherited = true;
  bool later_process_replaces = true;  // if two processes have the same node id, only the later process is valid
  bool lost_members_end_round = true;
  bool end_is_committed_first = true;      // a majority has stored how the job ends before any node exits (end_commit.hpp)
  bool stop_requests_are_merged = true;    // stop requests within a short time are handled together (drain.hpp)
  bool failures_are_resent = true;         // a node sends its failure report again to the next coordinator
  bool missed_messages_are_resent = true;  // after a reset, a session sends the missing messages again
  bool messages_wait_for_records = true;   // a message that depends on a record is sent only after the record is on disk
  std::size_t successors_named = kSuccessors;
};

}  // namespace ddprun::rendezvous
