// The interface between a simulated node and its launcher, which manages the workers. When a node is started, a new launcher
// is created, which receives the node's actions. tests/launcher/simulation implements the interface with the real agent. If
// there is no launcher, World simulates the workers in a simplified way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/node/node.hpp"

namespace ddprun::rendezvous::simulation {

// The simulated host on which a launcher runs. It provides the time and the node, and reports the state of the workers to
// World.
class LauncherHost {
 public:
  virtual ~LauncherHost() = default;

  virtual Now now() const = 0;
  virtual std::int64_t true_time() const = 0;  // ns since the start of the simulation
  virtual bool recovering() const = 0;         // true after all faults have ended
  virtual bool training() const = 0;           // true while the workers take part in a round
  virtual bool is_stuck() const = 0;           // true while the workers hang in the kernel
  virtual std::int64_t kill_takes() const = 0;
  // Calls `what` in the agent's process after `after` ns. The call is later if the process is suspended, and never happens if
  // the process has ended.
  virtual void in_agent(std::int64_t after, std::function<void()> what) = 0;
  // Calls `what` on the host after `after` ns, even if the agent's process is suspended or has ended. While the host is
  // suspended, the call waits.
  virtual void on_host(std::int64_t after, std::function<void()> what) = 0;
  virtual void to_node(MemberEvent event) = 0;

  // Call this when the workers start to take part in this round.
  virtual void work_begins(const Release& release) = 0;
  // Call this when the workers no longer take part in a round, because they have ended or wait.
  virtual void work_ends() = 0;
  virtual void is_stopping() = 0;
  // Call this when a worker has failed by itself. The round may then end, and the coordinator gets a report.
  virtual void worker_has_failed() = 0;
  virtual void worker_may_have_failed() = 0;  // Call this when a worker has failed while it was being stopped.
  virtual void round_is_lost() = 0;           // Call this when the round ends for a reason that does not count as a restart.
  virtual void saves_at(std::int64_t step) = 0;
  virtual void no_deadline() = 0;  // Call this when the guardian no longer needs to kill the workers at a certain time.
  virtual void leaves_permanently() = 0;
  virtual void hangs(bool so) = 0;  // Call this with true if the workers of this round do not start to train.

  virtual void finish(int exit_code, const std::string& why) = 0;
  virtual void violate(const std::string& what) = 0;
  virtual void trace(const std::string& line) = 0;
};

class SimulatedLauncher {
 public:
  virtual ~SimulatedLauncher() = default;

  virtual void begin() = 0;
  // Carries out StartWorkers, StopWorkers, DismissHeld, StopAndSave, StopAt or Finish.
  virtual void carry_out(const NodeAction& action) = 0;
  virtual void get_signal(int signal) = 0;
  // Returns true if all workers could save now.
  virtual bool can_save() const = 0;
  // Makes a worker fail. If `its_device` is true, its device fails too. Returns false if no device has failed.
  virtual bool fail_a_worker(bool its_device) = 0;
  virtual void finish_workers() = 0;
  virtual void guardian_ends_workers() = 0;
  virtual void release_from_kernel() = 0;
};

struct LauncherContext {
  std::uint64_t seed = 0;
  std::uint64_t chance = 0;  // random seed, which is different for each start
  int workers = 1;
};

using LauncherFactory = std::function<std::unique_ptr<SimulatedLauncher>(LauncherHost&, const LauncherContext&)>;

}  // namespace ddprun::rendezvous::simulation
