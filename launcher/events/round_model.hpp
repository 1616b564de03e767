// The workers of the current round on this node, as far as the agent's events show them. One instance gets each event before
// all other observers do. The other observers read this instance, so the following rules are implemented only once:
//
//   - A round starts without workers. After a regroup, the survivors remain.
//   - The ranks of survivors move with the rank of their node. If node 1 of two nodes with two workers each becomes node 0, its
//     ranks 2 and 3 become 0 and 1.
//   - A late WorkerEnded event of a replaced process does not mark its replacement as ended.
//
// The code is pure (no I/O, no clock) and runs on one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "launcher/events/run_event.hpp"

namespace ddprun {

class RoundModel : public RunObserver {
 public:
  struct Worker {
    int local_rank = 0;
    std::int64_t pid = 0;
    std::optional<channel::Phase> phase{};
    std::int64_t step = -1;   // newest step that the worker has reported; -1: none
    std::int64_t epoch = -1;  // -1: unknown
    std::int64_t started_ns = 0;
    std::int64_t last_message_ns = 0;  // time of the worker's last message; 0: no message so far
    std::optional<double> own_s{};     // seconds per step, without the time in which the rank waits for other ranks
    std::optional<double> waiting_s{};
    std::optional<ExitStatus> ended{};
  };

  void on(const RunEvent& event) override;

  // Returns the newest RoundStarted event. All its members are zero before the first round.
  const RoundStarted& round() const { return round_; }
  // Returns the workers by rank, including those that have ended.
  const std::map<int, Worker>& workers() const { return workers_; }
  // Returns nullptr if this node has no worker with that rank.
  const Worker* find(int rank) const;

 private:
  void begin(const RoundStarted& event);
  void handle(const WorkerReported& event);

  RoundStarted round_{};
  std::map<int, Worker> workers_;
};

}  // namespace ddprun
