// Simulates a whole job on one thread: the real rendezvous::Node state machines run in a simulated world. TigerBeetle's VOPR
// works in the same way.
//
// The problem. Many defects of a rendezvous appear only if several faults happen at particular times. For example, a Hello was
// in flight for four seconds, and meanwhile its sender lost power. An elected coordinator counted the sender as a node, and
// started a round. But three other nodes had started the job again, so two copies of the job trained at the same time. A test
// on real machines rarely produces such a case, and cannot repeat it.
//
// The idea. The state machines are pure, so time, network, hosts, disks and workers can be simulated. All events are in one
// queue, ordered by time, and a seed determines every choice. Clocks drift. Hosts crash, freeze, sleep or lose power. Links
// are slow, blocked in one direction, or reset. Records are written late or not at all. Workers fail, stop late or hang in the
// kernel. Then all faults end, and the job must end too. Two kinds of properties are checked:
//   Safety, at every event (simulated_invariants.cpp). A term has one coordinator. Rounds of different coordinators never
//   train at the same time. A round ends only after a failure, a stop signal, or a change of its nodes. Liveness. The job ends
//   within 120 s after the last fault, unless a node that may be needed has left. A job without disturbing faults is never
//   idle for 30 s (simulated_goodput.cpp).
// DDPRUN_SIMULATION_SEED=N repeats a failing seed, and prints its faults, votes and rounds.
//
// Do the checks find errors? simulation_test.cpp breaks one rule of rules.hpp at a time, and some seed must then fail. If no
// seed failed without a rule, the rule was removed, or a unit test tests the rare case
// (docs/internals/decisions/rendezvous/rules-that-no-seed-needs.md).
//
// Alternatives tried. Invariants with exceptions for rare cases hide defects. In about one of 1,000 seeds, an exception
// accepted a finished job that ran again. Now, if docs/rendezvous.md gives no guarantee for a case, the run ends as `excused`.
// A test allows this for at most 1 % of the seeds. Several failures were errors of the simulator itself, so read the printed
// events before you change the code. Faults that were added later use separate random generators. With a common generator,
// each new fault would change the events of all old seeds, and some tests depend on these seeds.
//
// The cost. The main test runs 2,000 seeds, or 60 with sanitizers, or 100,000 in a long run. Sockets, TLS, threads and the
// shell are not simulated. In one of eight seeds, all messages are encoded and decoded. The agent is simulated only if the
// scenario has a launcher.
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
  Rules rules{};   // The rules of the protocol that the simulated nodes follow. Tests turn off one rule at a time.
  int agents = 0;  // number of nodes; if 0, the seed determines it
  bool faults = true;
  // If true, the host of the coordinator loses power when all nodes train, and each TLS handshake costs the server some time.
  // Use it with faults = false.
  bool loses_coordinator = false;
  bool arbiter = false;        // if true, min_nodes is 1, and the seed selects etcd or a run directory as the arbiter
  bool clocks_stop = false;    // if true, clocks stop while their host is suspended, as CLOCK_MONOTONIC does
  bool sends_queries = false;  // if true, each time its workers start, a node sends a query to all nodes or to one node
  bool trace = false;          // if true, Result::trace_lines is filled
  LauncherFactory launcher{};  // creates a launcher for each node; if empty, World simulates the workers itself
  // The restart policy. If it is empty, each failure causes a restart, up to max_restarts.
  std::function<Verdict(const FailureReport&, const Budget&, int max_restarts)> judge{};
};

struct Result {
  std::string violation{};  // the violated invariant; "" if no invariant is violated
  bool excused = false;     // true if the run ended early, in a case for which docs/rendezvous.md gives no guarantee
  std::string stuck{};      // a message if the job did not end in time after the last fault; "" if it did
  std::vector<std::string> trace_lines{};
  std::int64_t events = 0;
  std::int64_t rounds = 0;
  std::int64_t successions = 0;
  std::int64_t resumed = 0;          // number of sessions that were resumed
  std::int64_t by_death_notice = 0;  // number of coordinators that had received a death notice before their election
  std::int64_t transfers = 0;        // number of TransferLeadership messages that were sent
  std::int64_t by_arbiter = 0;       // number of arbiter votes that reached their node
  std::int64_t answers = 0;          // number of answers to the queries of Scenario::sends_queries
  int exit_code = -1;                // exit code of the job
  std::size_t largest_message = 0;   // size of the largest Release, in bytes
  std::size_t messages = 0;
  std::int64_t actions = 0;      // total number of actions of all nodes
  std::int64_t max_actions = 0;  // largest number of actions caused by one event
  // how often nodes were visited while majorities were counted; measures the work of candidates and coordinators
  std::int64_t counted = 0;
  double calm_s = 0;     // seconds in which no fault disturbed the nodes and enough nodes were connected
  double trained_s = 0;  // the part of calm_s in which a round trained, in seconds
  // Set if Scenario::loses_coordinator is true: seconds from the end of the coordinator's lease until all other nodes train
  // again; -1 if that never happens.
  double at_work_again_s = -1;
};

Result simulate(const Scenario& scenario);

}  // namespace ddprun::rendezvous::simulation
