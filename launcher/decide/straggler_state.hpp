// Finds the rank that computes longer while the others wait for it, and the kind of that delay. It is a pure state machine
// without a clock. Its input is the step times of each rank (channel::Pace) and the system's counters for the same time. Its
// output is findings. launcher/beside/straggler_look.hpp feeds it.
//
//     even -- a rank's own time is above the margin --> a rank straggles -- it is below half the margin --> even
//
// It compares the newest 20 steps, or 20 pieces of several short steps. The longest piece of each rank is left out, since one
// checkpoint, one page of results or one hiccup of the system makes no straggler. A rank is a straggler if its own time exceeds
// the median of the others by at least a fifth of a step and 2 ms. The others must also wait longer than this rank, by at least
// half of that difference. On a busy machine every rank waits for processors, and the slowest rank changes. So the difference
// must also be at least three times the others' wait for processors.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/events/run_event.hpp"

namespace ddprun {

// Some steps of one rank. The times are seconds, summed over these steps.
struct RankPace {
  int rank = 0;
  std::int64_t step = 0;   // the newest of these steps
  std::int64_t steps = 1;  // number of steps
  double own = 0;
  double waiting = 0;
  double data = 0;     // part of `own`: until the rank had its batch
  double queued = 0;   // ready to run, but without a processor
  double stopped = 0;  // by SIGSTOP
  double disk = 0;     // waited for a disk, if the kernel counts that
  double asleep = 0;   // part of `own`: neither ran nor queued nor stopped
};

// A connection of a rank to another machine.
struct RankLink {
  std::string from{};  // addresses
  std::string to{};
  double round_trip_s = 0;
};

class StragglerState {
 public:
  static constexpr double kExplains = 0.5;  // a part decides the kind if it is at least this share of the difference
  struct Finding : Straggler {
    double step_s = 0;
    double difference_s = 0;  // between the rank and the others
    bool sleeps = false;      // the rank slept for at least kExplains of it: perhaps it waits for a disk
  };

  // `exchange`: true if the exchange between the ranks may be the cause too. It is false on one machine, where a lack of
  // processors would look like a slow exchange.
  void begin_round(int world_size, bool exchange);
  // The newest step of the rank may be reported again, for example with the metrics of an evaluation after it. The times are
  // then added.
  void add(RankPace pace);
  // Replaces the links of that rank. Only for a job on several nodes.
  void set_links(int rank, std::vector<RankLink> links);
  // Returns the changes since the last call: a straggler, its end, or both. pid and time are not set.
  std::vector<Finding> judge();

 private:
  // Means over one rank's newest steps.
  struct Sum {
    int rank = 0;
    std::size_t pieces = 0;
    RankPace all{};  // per step
    double own = 0;  // per step, without the longest piece
    double waiting = 0;
  };
  std::vector<Sum> sums(std::int64_t from, std::int64_t to) const;
  void judge_ranks(const std::vector<Sum>& ranks, Finding finding);
  void judge_exchange(const std::vector<Sum>& ranks, Finding finding);
  void blame_a_link(Finding& finding) const;

  int world_size_ = 0;
  bool exchange_ = false;
  std::vector<std::deque<RankPace>> newest_;  // by rank
  std::int64_t judged_ = -1;                  // newest step that was judged
  std::optional<Finding> straggler_;          // the straggler that was reported, until its end
  std::optional<double> quickest_exchange_;
  std::map<int, std::vector<RankLink>> links_;  // by rank
  std::vector<Finding> findings_;
};

}  // namespace ddprun
