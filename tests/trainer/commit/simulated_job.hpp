// Simulates jobs that lose ranks at every point of a step and of a regroup. The simulator runs the production code for layouts,
// transfer plans, the progress of each rank and the commit rule.
//
// The problem. The loss of a rank can leave some pieces of the state at step k and others at step k+1. Another rank can be lost
// while the survivors repair the state. Tests that list the cases cannot cover all of them, and a wrong decision loses or
// repeats a step without any error message.
//
// The idea. All decisions are pure, so a whole job can run on one thread. The simulator performs one action of one rank at a
// time, in an order that a seed determines. A collective consists of two actions: a rank enters it, and leaves it when all
// ranks of the group have entered. The value of each element is a hash of its history (simulated_values.hpp), so a wrong step
// gives a wrong value. The seed also determines the model, the strategy, the mirrors, the nodes, and one to four failures with
// their points and victims. It determines whether lost ranks are replaced, or whether the job shrinks or grows. After a loss
// the survivors continue for a random number of actions, until their group breaks.
//
// The oracle. The oracle uses the true state of each rank in the simulator, independent of reports and decisions. It checks
// these rules:
//  - No step is lost: the job continues after the newest step for which a survivor has agreed values.
//  - No step is made twice, and all holders of an element have the same value. When a rank starts a step, each of its elements
//    has the value of a run in which no rank is lost.
//  - The job returns to the checkpoint only if no rank has some element any more. If the strategy has replicas or mirrors, the
//    job never returns to the checkpoint after the loss of one rank.
//  - The result of an evaluation survives if a rank that has it survives.
//  - The job ends.
//
// Does the oracle find errors? commit_simulation_test.cpp plants each Mistake, and some seed must then fail.
//
// The cost. One seed takes about 0.3 ms. Memory, networks and threads are not simulated. A message is lost only if its receiver
// leaves the group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/trainer/commit/simulated_rank.hpp"

namespace ddprun::trainer::simulation {

struct CommitScenario {
  std::uint64_t seed = 0;
  Mistake mistake = Mistake::kNone;
  bool trace = false;  // true: fills CommitResult::story
};

struct CommitResult {
  std::string violation{};  // the first violation; empty if the oracle found none
  std::vector<std::string> story{};
  std::int64_t actions = 0;
  // The numbers of regroups of each kind. One regroup may belong to several kinds.
  int regroups = 0;
  int returns = 0;
  int completions = 0;
  int checkpoints = 0;
  int interrupted = 0;    // number of regroups during which another rank was lost
  int double_losses = 0;  // number of regroups after two or more ranks were lost at the same time
  int failed_updates = 0;
  int broken_gathers = 0;
  int new_layouts = 0;
};

CommitResult simulate_job(const CommitScenario& scenario);

}  // namespace ddprun::trainer::simulation
