// What the guardian kills when, as a pure state machine: orders of the agent, deaths of children and the end of the grant come
// in, what is to be done goes out (Do), in that order. guardian.cpp feeds it and carries it out. "Children" are all that this
// process has, without the store of scripts and spares: workers, and every orphan of theirs, since it is a subreaper. The
// SIGKILL that follows a SIGTERM comes from the agent instead (launcher/decide/agent_state.hpp).
//
//     round runs -- sweep is ordered --> sweeping, until no child is left --> round is over
//     round runs -- the last child was a worker ----------------------------> round is over, and no sweep is needed
#pragma once

#include <utility>
#include <vector>

namespace ddprun::guardian {

class SweepState {
 public:
  enum class Do {
    kKillCgroups,
    kEndStrangers,  // SIGTERM to processes that lead or are in no worker's process group: they have had no signal yet
    kKillChildren,
    kTellSwept,
  };
  using Orders = std::vector<Do>;

  // The agent orders a sweep. A patient one gives the remaining processes time to end by themselves; an impatient one may
  // follow.
  Orders ordered(bool patient, bool has_children) {
    sweeping_ = patient ? Sweeping::kPatiently : Sweeping::kKilling;
    Orders orders{patient ? Do::kEndStrangers : Do::kKillCgroups};
    go_on(has_children, orders);
    return orders;
  }

  // A child has ended, and all that could be reaped were reaped. Its own children are the guardian's from then on.
  Orders child_ended(bool has_children) {
    Orders orders;
    if (overdue_) orders.push_back(Do::kKillChildren);
    if (sweeping_ != Sweeping::kNo) go_on(has_children, orders);
    return orders;
  }

  // The last worker was reaped. True when no process of the round is left, so that no sweep is needed.
  bool last_worker_ended(bool has_children) {
    if (has_children || sweeping_ != Sweeping::kNo) return false;
    round_is_over_ = true;
    return true;
  }

  // The coordinator has not answered in time: another one may lead the job by now, and its workers must be the only ones.
  Orders grant_ended() {
    overdue_ = true;
    return {Do::kKillChildren};
  }
  // The grant has another end, or none.
  void grant_renewed() { overdue_ = false; }

  // No process of the round is left. Returns true once.
  bool take_end_of_round() { return std::exchange(round_is_over_, false); }

 private:
  enum class Sweeping { kNo, kPatiently, kKilling };

  void go_on(bool has_children, Orders& orders) {
    if (!has_children) {
      sweeping_ = Sweeping::kNo;
      round_is_over_ = true;
      orders.push_back(Do::kTellSwept);
    } else if (sweeping_ == Sweeping::kKilling) {
      orders.push_back(Do::kKillChildren);
    }
  }

  Sweeping sweeping_ = Sweeping::kNo;
  bool overdue_ = false;
  bool round_is_over_ = false;
};

}  // namespace ddprun::guardian
