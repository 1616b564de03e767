// What may stand between a simulated node and its workers. Without one, World plays workers in a few words. With one
// (tests/launcher/simulation has the agent that ships), each start of a node makes a launcher, which hears what its node
// wants, and does with its workers what it decides.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/node/node.hpp"

namespace ddprun::rendezvous::simulation {

// The simulated host of a launcher: time, its node, and what World must know of its workers.
class LauncherHost {
 public:
  virtual ~LauncherHost() = default;

  virtual Now now() const = 0;
  virtual std::int64_t true_time() const = 0;  // ns since the simulation began
  virtual bool recovering() const = 0;         // no more faults come
  virtual bool training() const = 0;           // its workers take part in a round
  virtual bool is_stuck() const = 0;           // the kernel lets go of no worker
  virtual std::int64_t kill_takes() const = 0;
  // In the agent's process: not while that is stopped. Nothing happens when it has ended.
  virtual void in_agent(std::int64_t after, std::function<void()> what) = 0;
  // On its host: whatever the agent's process does, but not while the host sleeps.
  virtual void on_host(std::int64_t after, std::function<void()> what) = 0;
  virtual void to_node(MemberEvent event) = 0;

  // The workers take part in that round from now on.
  virtual void work_begins(const Release& release) = 0;
  // They do so no more: they have ended, or wait.
  virtual void work_ends() = 0;
  virtual void is_stopping() = 0;
  virtual void worker_has_failed() = 0;       // by itself: the round may end, and its coordinator hears of it
  virtual void worker_may_have_failed() = 0;  // it was being stopped as well
  virtual void round_is_lost() = 0;           // for a reason that costs no restart
  virtual void saves_at(std::int64_t step) = 0;
  virtual void no_deadline() = 0;  // for the guardian
  virtual void leaves_for_good() = 0;
  virtual void hangs(bool so) = 0;  // the round does not come to work

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
  // If all were told to save now, they could.
  virtual bool can_save() const = 0;
  // Of the host.
  // False: no device of it can have failed.
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
