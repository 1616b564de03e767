// The constructor arguments of a coordinator: the job's settings, the function that judges failures, and the result of the
// election. The launcher sets the settings, and node.hpp sets the result of the election. All types are plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// The decision whether the job continues after a failed round (a round is one start of all workers). JudgeFailure, which is
// the launcher's restart policy, makes this decision. The function must be pure, because it is also called when no restart
// follows.
struct Verdict {
  bool restart = false;
  int exit_code = 1;         // exit code of the job, if `restart` is false
  bool others_save = false;  // if `restart` is false: the workers that wait for the next round should save their state
  // true: after these workers have saved, the exit code is 85 (preempted). false: the exit code stays `exit_code`, because the
  // next start would fail in the same way.
  bool preempted_once_saved = true;
  std::string why{};      // for messages, such as "restart 1 of 3" or "budget of 3 restarts spent"
  std::string failure{};  // for messages, such as "worker 3 on b: exit code 7"
  milliseconds delay{};
  Budget after{};  // restart budget after this restart
  // Returns the job's final message, if `restart` is false.
  std::string end() const { return failure.empty() ? why : failure + "; " + why; }
};
using JudgeFailure = std::function<Verdict(const FailureReport& first, const Budget& before)>;

struct CoordinatorSettings {
  NodeId self{};
  RunDigest run{};
  std::uint64_t arbiter = 0;  // digest of --arbiter, which must be the same on all nodes
  std::uint64_t command = 0;  // hash of the program and its arguments; a node with another hash is refused
  std::int32_t min_nodes = 1;
  std::int32_t max_nodes = 1;
  milliseconds last_call{2000};    // how long to wait for more nodes after min_nodes have joined
  milliseconds regroup_call{300};  // how long an elected coordinator waits for the other nodes of the previous round
  milliseconds stop_call{250};     // after one node received a stop signal, how long to wait for signals to other nodes
  milliseconds join_timeout{600000};
  // How long a node's workers may take to end. After this time the other nodes continue without the node. The timeout is at
  // least one lease. The launcher should set it to the shutdown timeout plus a margin, so that slow workers do not exceed it.
  milliseconds ready_timeout{90000};
  milliseconds lease{5000};
  std::int32_t max_restarts = 0;  // sent to the nodes for their workers; `judge` applies the limit
  JudgeFailure judge{};
  std::string master_addr{};      // the user's --master-addr; if empty, the address of the node with group rank 0
  std::uint16_t master_port = 0;  // if 0: the port that the node with group rank 0 has reserved
  // A node that was lost `flaps` times within flap_window may not rejoin for cool_down.
  int flaps = 4;
  milliseconds flap_window{60000};
  milliseconds cool_down{30000};
  std::set<std::string> failing_hosts{};  // host names of nodes that take part only if they are needed (reserves.hpp)
  Rules rules{};
};

// The condition for the first round of a coordinator that was not elected. A job of the same name may already be running
// (coordinator/bootstrap.hpp). So enough nodes must be connected that the other job has fewer than min_nodes, and cannot start
// a round.
struct FirstRound {
  std::int32_t nodes = 0;  // number of nodes that must be connected; 0: no condition
  // From this time on, the round may start with fewer nodes: a coordinator that was already running would have connected to
  // this node by then.
  std::optional<Time> alone_after{};
};

// The reason why a coordinator may lead: it is the first coordinator of a job, or it was elected.
struct Authority {
  std::uint64_t term = 1;
  bool elected = false;
  FirstRound first{};  // valid only if `elected` is false
  // The previous coordinator, if its guardian has sent a death notice, or if it has left after a leadership transfer. That
  // node does not vote again, and its workers have ended.
  struct Departed {
    NodeId node{};
    std::int32_t rank = 0;
    std::int32_t previous_rank = -1;
  };
  std::optional<Departed> departed{};
  PersistentState known{};  // the newest round in the state of any voter, with the restart budget
  Roster roster{};          // the nodes of the newest round that this node has started as coordinator
  // True if the budget in `known` already counts the failure that ended the round `known.current`
  // (LeaderElection::has_judged()).
  bool judged = false;
};

}  // namespace ddprun::rendezvous
