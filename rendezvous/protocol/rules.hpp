// The rules that keep a job one job, each as a value with its name. Nobody sets them but the simulator's tests, which break one
// at a time and show that the simulator finds out: a rule whose absence nobody would notice is not a rule.
//
// Times are parts of the lease L (5 s). Clocks of two nodes differ by at most 10 % in rate, so that what one node ends at L
// (at most 1.111 L of true time) is over before another one begins at 1.25 L (at least 1.136 L).
#pragma once

#include <cstddef>

#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

struct Rules {
  // ---- time ----
  // Workers may run for that long after the newest ping that the coordinator answered. Less than give_up, by more than the
  // drift: a silent member's workers are gone when the others go on without it.
  double grant = 0.8;
  double start_with = 0.3;  // workers start only with that much of a grant left
  double give_up = 1.0;     // a member that is silent for that long is lost
  // The coordinator's authority ends that long after it asked the newest question that a majority has answered.
  double authority = 1.0;
  double vote_after = 1.25;  // nobody votes for another coordinator before its own one was silent for that long
  // Who voted for another candidate gives it two round trips to win before it stands itself: as a Raft server that grants its
  // vote begins its election timeout anew. Otherwise nodes with slow links overtake each winner with a later term.
  double voter_stands_back = 0.4;
  // A connection that was reset may come back for that long, and a second at most. Nothing rests on a connection but how soon a
  // loss is noticed, and this is less than what a member may be silent for.
  double resume = 0.2;
  bool grant_ends_workers = true;
  bool grants_need_majority = true;

  // ---- who may lead ----
  bool majority_needed = true;
  bool half_needs_rank_0 = true;        // exactly half of the nodes is enough only with the lowest-ranked node among them
  bool rank_0_asks_the_arbiter = true;  // where there is one, also that node is no majority by itself
  bool arbiters_word_waits = true;      // whoever has it waits until what the other node may still have is over
  bool arbiters_word_is_one = true;     // a round that it gave to the other node is not this one's
  bool one_vote_a_term = true;
  bool both_rounds_until_committed = true;
  bool commit_before_change = true;          // the next round waits until a majority knows the last one
  bool inherited_rounds_are_renewed = true;  // a successor releases the round that it inherits again
  bool coordinator_remembers_members = true;
  bool who_steps_down_revokes = true;  // the farewell that its guardian was to say, before it votes for anybody
  bool handovers_wait = true;          // until nothing runs any more that the coordinator which leaves has granted
  bool coordinators_visit = true;      // where nodes may be that don't know them
  bool first_round_is_alone = true;    // who leads unelected where a job may be running waits until no other round can
  bool gives_up = true;                // a node that looks in vain for the job that it remembers gives up who it was
  bool lost_job_is_remembered = true;  // a node that followed a coordinator, or left it, knows of that job when it starts again

  // ---- rounds ----
  bool wait_for_ready = true;    // the next round is not released before the last one's workers are gone
  bool holes_are_filled = true;  // group ranks are 0..n-1
  bool budget_is_inherited = true;
  bool later_process_replaces = true;  // of two with one identity
  bool lost_members_end_round = true;
  bool ends_are_known_first = true;     // before a node ends, those who could choose another coordinator know how
  bool stop_requests_are_one = true;    // those that come together: a scheduler signals all nodes of a job
  bool failures_are_said_again = true;  // to a coordinator that was elected since
  bool missing_is_resent = true;        // when a session is resumed
  bool words_wait_for_records = true;   // a node says nothing that a later start of it could contradict
  std::size_t successors_named = kSuccessors;
};

}  // namespace ddprun::rendezvous
