// Finds a straggler: a rank whose own work takes longer than the work of the other ranks. The other ranks wait for it in each
// step. StragglerState also determines the kind of the delay. The class is a pure state machine without a clock.
// launcher/stragglers/straggler_monitor.hpp calls it.
//
// The problem. Ranks wait for each other in each step. So the step time is equal on all ranks and does not show which rank is
// slow. Each rank therefore reports two times: its own time and the time for which it waited for other ranks (channel::Pace).
//
// How it goes wrong. Own times also differ if there is no straggler. Rank 0 saves a checkpoint in one of its steps. On a busy
// machine every rank waits for processors, and the slowest rank changes from second to second.
//
// The idea. We compare means over the newest 20 steps. Steps that are too short to measure are reported together as one piece,
// and then 20 pieces are compared. The longest piece of each rank is left out of its mean, because it may contain a save. A
// rank is a straggler if all of these conditions hold:
// - Its own time exceeds the median of the other ranks by the margin: a fifth of the step time, and at least 2 ms.
// - The other ranks wait longer than this rank, by at least half of that excess.
// - The excess is at least three times the time for which the others wait for processors. This does not apply after SIGSTOP.
//
// The straggler has recovered when the excess is below half the margin:
//
//     even -- excess >= margin --> a rank straggles -- excess < margin / 2 --> even
//
// The kind follows from the kernel's counters for the same steps. A counter determines the kind if it explains at least half of
// the excess.
//
// An example: three ranks compute for 100 ms and wait for 70 ms. Rank 2 computes for 160 ms and waits for 10 ms. The margin is
// a fifth of 170 ms, thus 34 ms. The excess is 60 ms, and the others wait 60 ms longer than rank 2. So rank 2 is a straggler.
// If it was ready to run but had no processor for 40 ms of each step, the kind is kProcessor.
//
// In a multi-node job the exchange between ranks can become slow, although no rank is slow (kNetwork). The shortest waiting
// time of all ranks measures the exchange. The exchange is slow if it takes three times as long as the fastest earlier
// exchange. The additional time must also be 30 % of the step time and 2 ms.
//
// The cost: a straggler is found only after 10 to 20 steps. docs/internals/decisions/hang/own-time-and-waiting.md has
// measurements and the alternatives that we tried.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/events/run_event.hpp"

namespace ddprun {

// The step times of one rank, in seconds, summed over `steps` steps. `own` is the time of the rank's own work. `waiting` is the
// time for which it waited for other ranks.
struct RankPace {
  int rank = 0;
  std::int64_t step = 0;   // newest of the `steps` steps
  std::int64_t steps = 1;  // number of steps
  double own = 0;
  double waiting = 0;
  double data = 0;     // part of `own`: time until the rank had its batch
  double queued = 0;   // time for which the rank was ready to run, but had no processor
  double stopped = 0;  // time for which the rank was stopped by SIGSTOP
  double disk = 0;     // time for which the rank waited for a disk, if the kernel counts that
  double asleep = 0;   // part of `own` in which the rank did not run, was not ready to run and was not stopped
};

// The times of a RankPace, in their order in a message between nodes. In the message, the times follow rank, step and steps.
inline constexpr std::array kTimesOfPace{&RankPace::own,     &RankPace::waiting, &RankPace::data,  &RankPace::queued,
                                         &RankPace::stopped, &RankPace::disk,    &RankPace::asleep};

// A TCP connection of a rank to another machine.
struct RankLink {
  std::string from{};  // numeric addresses
  std::string to{};
  double round_trip_s = 0;
};

class StragglerState {
 public:
  static constexpr double kExplains = 0.5;  // a counter determines the kind if it is at least this fraction of the difference
  struct Finding : Straggler {
    double step_s = 0;
    double difference_s = 0;  // seconds per step by which the rank is slower than the other ranks
    bool sleeps = false;      // the rank slept for at least kExplains of the difference, perhaps because it waited for a disk
  };

  // Starts a new round. `exchange` is true if the exchange between ranks may also be the cause of a delay. Pass false on one
  // machine: there a lack of processors would be mistaken for a slow exchange.
  void begin_round(int world_size, bool exchange);
  // Adds a report. A rank may report its newest step again, for example after an evaluation. The times of both reports are then
  // added.
  void add(RankPace pace);
  // Replaces the links (TCP connections) of the rank. Only multi-node jobs call this.
  void set_links(int rank, std::vector<RankLink> links);
  // Returns the changes since the last call: a new straggler, the recovery of the last one, or both. `pid` and `time_ns` are
  // not set.
  std::vector<Finding> judge();

 private:
  // The means over one rank's newest steps.
  struct Sum {
    int rank = 0;
    std::size_t pieces = 0;
    RankPace all{};  // mean per step
    double own = 0;  // mean per step, without the longest piece
    double waiting = 0;
  };
  std::vector<Sum> sums(std::int64_t from, std::int64_t to) const;
  void judge_ranks(const std::vector<Sum>& ranks, Finding finding);
  void judge_exchange(const std::vector<Sum>& ranks, Finding finding);
  void find_slow_link(Finding& finding) const;

  int world_size_ = 0;
  bool exchange_ = false;
  std::vector<std::deque<RankPace>> newest_;  // index: rank
  std::int64_t judged_ = -1;                  // newest step that judge() has evaluated
  std::optional<Finding> straggler_;          // the straggler that was reported, until it has recovered
  std::optional<double> fastest_exchange_;
  std::map<int, std::vector<RankLink>> links_;  // key: rank
  std::vector<Finding> findings_;
};

}  // namespace ddprun
