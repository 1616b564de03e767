// A whole job on a simulated network: the real rendezvous::Node machines, with clocks that drift, hosts that crash, freeze or
// lose their power, links that are slow, blocked one way or reset, and workers that fail. Everything follows from a seed, so a
// failure can be run again with its story. What must hold is checked at every event, by simulated_invariants.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/node/node.hpp"
#include "tests/rendezvous/simulation/simulated_launcher.hpp"

namespace ddprun::rendezvous::simulation {

struct Scenario {
  std::uint64_t seed = 0;
  Rules rules{};   // broken by the mutation tests
  int agents = 0;  // 0: the seed says
  bool faults = true;
  // Instead of all faults: when all are at work, the coordinator's power goes, and each handshake costs its server some time.
  bool loses_coordinator = false;
  bool arbiter = false;      // one is there, and every node may go on alone; by seed it is a run directory
  bool clocks_stop = false;  // those of a host that sleeps: what CLOCK_MONOTONIC does
  bool asks = false;         // a node that begins to work asks all nodes something
  bool tell = false;         // collect the story
  MakesLauncher launcher{};  // if each node has one: its judge is `judge`
  std::function<Verdict(const FailureReport&, const Budget&, int max_restarts)> judge{};
};

struct Result {
  std::string violation{};  // of what must never be; empty: all held
  bool excused = false;     // what nobody promises had come about, and no more was looked at
  std::string stuck{};      // the job did not end in time after the last fault
  std::vector<std::string> story{};
  std::int64_t events = 0;
  std::int64_t rounds = 0;
  std::int64_t successions = 0;
  std::int64_t resumed = 0;      // sessions
  std::int64_t by_farewell = 0;  // of those
  std::int64_t handed_over = 0;  // words of coordinators that left
  std::int64_t by_arbiter = 0;   // votes of the arbiter that reached a node
  std::int64_t answers = 0;      // to questions that went to all nodes
  int exit_code = -1;            // of the job
  std::size_t largest_message = 0;
  std::size_t messages = 0;
  std::int64_t actions = 0;       // that machines wanted done
  std::int64_t most_actions = 0;  // in one event
  std::int64_t counted = 0;       // nodes, by candidates and coordinators
  double calm_s = 0;              // of time in which nothing disturbed the nodes, and enough of them were there
  double trained_s = 0;           // of that, the time in which a round trained
  // loses_coordinator: from the end of its lease until all others are at work again; -1: they are not.
  double at_work_again_s = -1;
};

Result simulate(const Scenario& scenario);

}  // namespace ddprun::rendezvous::simulation
