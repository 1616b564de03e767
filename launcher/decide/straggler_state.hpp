// Which rank computes longer while the others wait for it, and of what kind that is, as a pure state machine: how long steps
// took on each rank (channel::Pace), with what the system counted meanwhile, comes in; findings go out. It has no clock.
// launcher/beside/straggler_look.hpp feeds it.
//
//     even -- a rank's own time is above the margin --> a rank straggles -- it is below half the margin --> even
//
// It looks at the newest 20 steps, or pieces of several short ones. Each rank's longest is left out: one checkpoint, one page
// of results, one hiccup of the system is no straggler. Then a rank straggles if its own time is longer than that of the
// others, in the middle, by a fifth of a step and 2 ms, and if the others wait that much longer. On a busy machine every rank
// waits for processors, now one more and now another one. So the difference must also be three times what the others wait for
// processors.
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

// Some steps of one rank, in seconds for all of them together.
struct RankPace {
  int rank = 0;
  std::int64_t step = 0;   // the newest
  std::int64_t steps = 1;  // how many
  double own = 0;
  double waiting = 0;
  double data = 0;     // of own: until the rank had its batch
  double queued = 0;   // ready to run, but without a processor
  double stopped = 0;  // by a signal
  double disk = 0;     // waited for a disk, where the kernel counts that
  double asleep = 0;   // of own: neither ran nor queued nor stopped
};

// A connection of a rank to another machine.
struct RankLink {
  std::string from{};  // addresses
  std::string to{};
  double round_trip_s = 0;
};

class StragglerState {
 public:
  static constexpr double kExplains = 0.5;  // the share of the difference that names its kind
  struct Finding : Straggler {
    double step_s = 0;
    double difference_s = 0;  // of the rank to the others
    bool sleeps = false;      // for that share of it: perhaps it waits for a disk
  };

  // `exchange`: whether the exchange between the ranks may be the cause too. On one machine it is not: what looks like it is
  // want of processors.
  void begin_round(int world_size, bool exchange);
  // The rank's newest step may be told again, as with the figures of an evaluation after it: it took so much longer.
  void add(RankPace pace);
  // The newest of that rank; only of a job on several nodes.
  void set_links(int rank, std::vector<RankLink> links);
  // What has changed since the last call: a straggler, its end, or both. Without pid and time.
  std::vector<Finding> judge();

 private:
  // One rank's newest steps, per step.
  struct Sum {
    int rank = 0;
    std::size_t pieces = 0;
    RankPace all{};  // per step
    double own = 0;  // likewise without the longest
    double waiting = 0;
  };
  std::vector<Sum> sums(std::int64_t from, std::int64_t to) const;
  void judge_ranks(const std::vector<Sum>& ranks, Finding finding);
  void judge_exchange(const std::vector<Sum>& ranks, Finding finding);
  void blame_a_link(Finding& finding) const;

  int world_size_ = 0;
  bool exchange_ = false;
  std::vector<std::deque<RankPace>> newest_;  // by rank
  std::int64_t judged_ = -1;                  // up to this step
  std::optional<Finding> straggler_;          // the one that was told, until its end
  std::optional<double> quickest_exchange_;
  std::map<int, std::vector<RankLink>> links_;  // by rank
  std::vector<Finding> findings_;
};

}  // namespace ddprun
