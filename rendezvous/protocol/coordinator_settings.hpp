// The constructor arguments of a coordinator: the job's settings, the judge of failures, and the result of its election.
// node.hpp and the launcher fill them in. Values only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/quorum.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// The consequence of a failed round for the job. The launcher's restart policy computes it. It must be a pure function, so that
// a caller can query it without storing the new counts.
struct Verdict {
  bool restart = false;
  int exit_code = 1;         // the job's, if it is not restarted
  bool others_save = false;  // it is not restarted, but the waiting workers hold a state that is worth saving
  // The exit code after they have saved: 85 if true, or exit_code if the next start would fail in the same way.
  bool preempted_once_saved = true;
  std::string why{};      // "restart 1 of 3", "budget of 3 restarts spent"
  std::string failure{};  // "worker 3 on b: exit code 7"
  milliseconds delay{};
  Budget after{};  // the budget used before, plus this restart
  // The job's last message, if it is not restarted.
  std::string end() const { return failure.empty() ? why : failure + "; " + why; }
};
using JudgeFailure = std::function<Verdict(const FailureReport& first, const Budget& before)>;

struct CoordinatorSettings {
  NodeId self{};
  RunDigest run{};
  std::uint64_t arbiter = 0;  // as in Hello::arbiter
  std::uint64_t command = 0;  // as in Hello::command
  std::int32_t min_nodes = 1;
  std::int32_t max_nodes = 1;
  milliseconds last_call{2000};    // how long to wait for more nodes after min_nodes have joined
  milliseconds regroup_call{300};  // how long an elected coordinator waits for the other nodes
  milliseconds stop_call{250};     // wait for other nodes' stop signals after an optional node got one
  milliseconds join_timeout{600000};
  // How long a node's workers may take to end before the other nodes continue without it: at least one lease. The launcher
  // should set it to the shutdown timeout plus a margin: workers that exceed it are then stuck, not slow.
  milliseconds ready_timeout{90000};
  milliseconds lease{5000};
  std::int32_t max_restarts = 0;  // only passed on: `judge` decides
  JudgeFailure judge{};
  std::string master_addr{};      // as given by the user; empty: the address of the node with group rank 0
  std::uint16_t master_port = 0;  // 0: the port that the node with group rank 0 offers
  // A node that was lost `flaps` times within the window is set aside for the cool-down.
  int flaps = 4;
  milliseconds flap_window{60000};
  milliseconds cool_down{30000};
  Rules rules{};
};

// When an unelected coordinator may release its first round, while a job of the same name may already be running. It may when
// so many nodes are connected that fewer than min_nodes can be elsewhere: those cannot form a round.
struct FirstRound {
  std::int32_t nodes = 0;             // when this many nodes are connected
  std::optional<Time> alone_after{};  // or after this time: a coordinator elsewhere would have dialed this node by then
};

// The initial authority of a coordinator: none, or the result of an election.
struct Authority {
  std::uint64_t term = 1;
  bool elected = false;
  FirstRound first{};  // not used after an election
  // A node of the round that is dead according to its guardian, or that left and handed over. It does not vote again, and its
  // workers are gone.
  struct Departed {
    NodeId node{};
    std::int32_t rank = 0;
    std::int32_t previous_rank = -1;
  };
  std::optional<Departed> departed{};
  PersistentState known{};  // the newest round that an elector knows
  Roster roster{};          // set if this node released that round
  bool judged = false;  // the budget includes a failure of that round: another round was released after it, and was abandoned
};

}  // namespace ddprun::rendezvous
