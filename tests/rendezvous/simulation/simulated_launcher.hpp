// The interface between a simulated node and its workers. Without a launcher, World simulates the workers in a simple way. With
// one (tests/launcher/simulation uses the real agent), each start of a node creates a launcher. It gets the node's actions, and
// does with its workers what it decides.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/node/node.hpp"

namespace ddprun::rendezvous::simulation {

// The simulated host of a launcher: time, its node, and the state of its workers for World.
class LauncherHost {
 public:
  virtual ~LauncherHost() = default;

  virtual Now now() const = 0;
  virtual std::int64_t true_time() const = 0;  // ns since the start of the simulation
  virtual bool recovering() const = 0;         // no more faults will come
  virtual bool training() const = 0;           // its workers take part in a round
  virtual bool is_stuck() const = 0;           // its workers are stuck in the kernel
  virtual std::int64_t kill_takes() const = 0;
  // Runs in the agent's process: not while that is stopped, and not after it has ended.
  virtual void in_agent(std::int64_t after, std::function<void()> what) = 0;
  // Runs on its host, independent of the agent's process, but not while the host sleeps.
  virtual void on_host(std::int64_t after, std::function<void()> what) = 0;
  virtual void to_node(MemberEvent event) = 0;

  // The workers take part in that round from now on.
  virtual void work_begins(const Release& release) = 0;
  // The workers no longer take part: they have ended, or wait.
  virtual void work_ends() = 0;
  virtual void is_stopping() = 0;
  virtual void worker_has_failed() = 0;       // by itself: the round may end, and its coordinator gets a report
  virtual void worker_may_have_failed() = 0;  // it was also being stopped
  virtual void round_is_lost() = 0;           // for a reason that costs no restart
  virtual void saves_at(std::int64_t step) = 0;
  virtual void no_deadline() = 0;  // for the guardian
  virtual void leaves_for_good() = 0;
  virtual void hangs(bool so) = 0;  // the round does not start to train

  virtual void finish(int exit_code, const std::string& why) = 0;
  virtual void violate(const std::string& what) = 0;
  virtual void tell(const std::string& line) = 0;
};

class SimulatedLauncher {
 public:
  virtual ~SimulatedLauncher() = default;

  virtual void begin() = 0;
  // StartWorkers, StopWorkers, DismissHeld, StopAndSave, StopAt and Finish.
  virtual void carry_out(const NodeAction& action) = 0;
  virtual void get_signal(int signal) = 0;
  // True if all workers could save when ordered now.
  virtual bool can_save() const = 0;
  // Called by the host. Returns false if none of its devices can have failed.
  virtual bool fail_a_worker(bool its_device) = 0;
  virtual void finish_workers() = 0;
  virtual void guardian_ends_workers() = 0;
  virtual void kernel_lets_go() = 0;
};

struct LauncherPlace {
  std::uint64_t seed = 0;
  std::uint64_t chance = 0;  // differs between starts
  int workers = 1;
};

using MakesLauncher = std::function<std::unique_ptr<SimulatedLauncher>(LauncherHost&, const LauncherPlace&)>;

}  // namespace ddprun::rendezvous::simulation
