// The rules that prevent two rounds of one job at the same time, each as a named value. Only the simulator's tests change them:
// they break one rule at a time and show that the simulator detects it. A rule whose absence is not detected does not belong
// here.
//
// Times are fractions of the lease L (5 s). The clock rates of two nodes differ by at most 10 %. So what one node ends at L (at
// most 1.111 L of true time) is over before another node begins at 1.25 L (at least 1.136 L).
#pragma once

#include <cstddef>

#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

struct Rules {
  // ---- time ----
  // Workers may run for this long after the newest ping that the coordinator answered. This is shorter than give_up by more
  // than the clock drift, so the workers of a silent member are gone before the others continue without it.
  double grant = 0.8;
  double start_with = 0.3;  // workers start only if at least this much of the grant is left
  double give_up = 1.0;     // a member that is silent for this long is lost
  // The coordinator has authority for this long after it sent the newest stamp that a majority has sent back.
  double authority = 1.0;
  double vote_after = 1.25;  // election timeout: a node does not vote within this time after the last message of its
                             // coordinator
  // A node that voted for another candidate gives it two round trips to win before it becomes a candidate itself. Raft does the
  // same: a server that grants its vote restarts its election timeout. Otherwise nodes with slow links would overtake each
  // winner with a later term.
  double voter_stands_back = 0.4;
  // A session may be resumed for this long, and at most one second, after a reset of its connection. A closed connection only
  // makes a loss visible sooner; this time is shorter than the silence that a member may keep.
  double resume = 0.2;
  bool grant_ends_workers = true;
  bool grants_need_majority = true;

  // ---- who may lead ----
  bool majority_needed = true;
  bool half_needs_rank_0 = true;        // exactly half of the nodes is a majority only if it includes the lowest-ranked node
  bool rank_0_asks_the_arbiter = true;  // with an arbiter, rank 0 alone is no majority either
  bool arbiters_word_waits = true;   // the node with the arbiter's vote waits until the other node's grants and authority are
                                     // over
  bool arbiters_word_is_one = true;  // a round whose vote the arbiter gave to the other node is not this node's
  bool one_vote_a_term = true;
  bool both_rounds_until_committed = true;
  bool commit_before_change = true;          // the next round waits until a majority has installed the current one
  bool inherited_rounds_are_renewed = true;  // a successor releases an inherited round again
  bool coordinator_remembers_members = true;
  bool who_steps_down_revokes = true;  // a coordinator that steps down revokes its farewell at its guardian before it votes
  bool handovers_wait = true;          // until nothing runs any more under grants of the leaving coordinator
  bool coordinators_announce = true;   // a coordinator dials addresses where nodes may not know it
  bool first_round_is_alone = true;    // if a job may be running, an unelected coordinator waits until no other round can run
  bool gives_up = true;                // a node gives up its old identity if it does not find the job in its record
  bool lost_job_is_remembered = true;  // after a restart, a node knows of the job that it was in or left

  // ---- rounds ----
  bool wait_for_ready = true;    // the next round is not released before the workers of the last one are gone
  bool holes_are_filled = true;  // group ranks are 0..n-1
  bool budget_is_inherited = true;
  bool later_process_replaces = true;  // of two processes with one identity, the later one counts
  bool lost_members_end_round = true;
  bool ends_are_known_first = true;   // before a node ends, the nodes that could elect another coordinator know the job's end
  bool stop_requests_are_one = true;  // stop requests within a short time count as one: a scheduler signals all nodes of a job
  bool failures_are_said_again = true;  // repeated to a coordinator that was elected after the failure
  bool missing_is_resent = true;        // missed messages are sent again when a session is resumed
  bool words_wait_for_records = true;   // a node sends nothing that depends on an unwritten record
  std::size_t successors_named = kSuccessors;
};

}  // namespace ddprun::rendezvous
