// The rules that keep a job from becoming two, each as a named value. Only the simulator's tests change them: they break one at
// a time and show that the simulator notices. A rule whose absence nobody would notice is not a rule.
//
// Times are parts of the lease L (5 s). Clocks of two nodes differ by at most 10 % in rate, so that what one node ends at L
// (at most 1.111 L of true time) is over before another one begins at 1.25 L (at least 1.136 L).
#pragma once

#include <cstddef>

#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

struct Rules {
  // ---- time ----
  // Workers may run for that long after the newest ping that the coordinator answered. It is less than give_up by more than the
  // clock drift: a silent member's workers are gone before the others continue without it.
  double grant = 0.8;
  double start_with = 0.3;  // workers start only when at least this much of the grant is left
  double give_up = 1.0;     // a member that is silent for that long is lost
  // The coordinator has authority for that long after it sent the newest stamp that a majority has sent back.
  double authority = 1.0;
  double vote_after = 1.25;  // election timeout: nobody votes against a coordinator that it has heard so recently
  // A node that voted for another candidate gives it two round trips to win before it becomes a candidate itself, as a Raft
  // server that grants its vote restarts its election timeout. Otherwise nodes with slow links would overtake each winner with
  // a later term.
  double voter_stands_back = 0.4;
  // For that long, and at most one second, a session may be resumed after its connection was reset. A connection only decides
  // how soon a loss is noticed, and this is shorter than the silence that a member may keep.
  double resume = 0.2;
  bool grant_ends_workers = true;
  bool grants_need_majority = true;

  // ---- who may lead ----
  bool majority_needed = true;
  bool half_needs_rank_0 = true;        // exactly half of the nodes is a majority only with the lowest-ranked node
  bool rank_0_asks_the_arbiter = true;  // with an arbiter, rank 0 alone is no majority either
  bool arbiters_word_waits = true;      // the node that has its vote waits until the other node's grants and authority are over
  bool arbiters_word_is_one = true;     // a round whose vote it gave to the other node is not this node's
  bool one_vote_a_term = true;
  bool both_rounds_until_committed = true;
  bool commit_before_change = true;          // the next round waits until a majority has installed the current one
  bool inherited_rounds_are_renewed = true;  // a successor releases the round that it inherits again
  bool coordinator_remembers_members = true;
  bool who_steps_down_revokes = true;  // a coordinator that steps down revokes its farewell at its guardian before it votes
  bool handovers_wait = true;          // until nothing runs any more that the leaving coordinator has granted
  bool coordinators_announce = true;   // a coordinator dials addresses where nodes may be that don't know it
  bool first_round_is_alone = true;  // an unelected coordinator waits, where a job may be running, until no other round can run
  bool gives_up = true;              // a node that looks in vain for the job that it remembers gives its old identity up
  bool lost_job_is_remembered = true;  // a node knows of the job that it was in, or left, when it starts again

  // ---- rounds ----
  bool wait_for_ready = true;    // the next round is not released before the workers of the last one are gone
  bool holes_are_filled = true;  // group ranks are 0..n-1
  bool budget_is_inherited = true;
  bool later_process_replaces = true;  // of two processes with one identity the later one counts
  bool lost_members_end_round = true;
  bool ends_are_known_first = true;  // before a node ends, the nodes that could elect another coordinator know how the job ends
  bool stop_requests_are_one = true;    // requests that come together are one: a scheduler signals all nodes of a job
  bool failures_are_said_again = true;  // to a coordinator that was elected after the failure
  bool missing_is_resent = true;        // messages that were missed, when a session is resumed
  bool words_wait_for_records = true;   // a node sends nothing that rests on a record which is not written yet
  std::size_t successors_named = kSuccessors;
};

}  // namespace ddprun::rendezvous
