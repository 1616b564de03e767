// What a coordinator is told when it is made: the job's figures, the judge of failures, and what an election gave it. node.hpp
// and the launcher fill it in. Values only.
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

// What happens to the job after a round has failed. The launcher's restart policy answers; it must be a pure function, so that
// who only asks need not adopt what was counted.
struct Verdict {
  bool restart = false;
  int exit_code = 1;         // the job's, when it is not restarted
  bool others_save = false;  // it is not restarted, but the workers that wait hold a state that is worth saving
  // What the exit code is once they have saved: 85, or exit_code where the next start would fail in the same way.
  bool preempted_once_saved = true;
  std::string why{};      // "restart 1 of 3", "budget of 3 restarts spent"
  std::string failure{};  // "worker 3 on b: exit code 7"
  milliseconds delay{};
  Budget after{};  // what was used of it before, and this restart
  // The job's last words, when it is not restarted.
  std::string end() const { return failure.empty() ? why : failure + "; " + why; }
};
using JudgeFailure = std::function<Verdict(const FailureReport& first, const Budget& before)>;

struct CoordinatorSettings {
  NodeId self{};
  RunDigest run{};
  std::uint64_t arbiter = 0;  // as Hello::arbiter
  std::uint64_t command = 0;  // as Hello::command
  std::int32_t min_nodes = 1;
  std::int32_t max_nodes = 1;
  milliseconds last_call{2000};    // how long to wait for more nodes once min_nodes are here
  milliseconds regroup_call{300};  // how long an elected coordinator waits for the other nodes
  milliseconds stop_call{250};     // when an optional node gets a stop signal: how long to wait for the signals of others
  milliseconds join_timeout{600000};
  // How long a node's workers may take to end before the other nodes continue without it: at least one lease. The launcher
  // should set it to the shutdown timeout plus a margin, so that later workers are not slow but stuck.
  milliseconds ready_timeout{90000};
  milliseconds lease{5000};
  std::int32_t max_restarts = 0;  // passed on only: `judge` decides
  JudgeFailure judge{};
  std::string master_addr{};      // as typed; empty: the address of the node with group rank 0
  std::uint16_t master_port = 0;  // 0: the port that the node with group rank 0 offers
  // A node that was lost `flaps` times within the window is set aside for the cool-down.
  int flaps = 4;
  milliseconds flap_window{60000};
  milliseconds cool_down{30000};
  Rules rules{};
};

// When a coordinator that nobody elected may release its first round, if a job of the same name may be running already. It may
// when so many nodes are here that fewer than min_nodes can be elsewhere: they cannot form a round.
struct FirstRound {
  std::int32_t nodes = 0;             // when this many nodes are here
  std::optional<Time> alone_after{};  // or after this time: a coordinator elsewhere would have called by then
};

// What a coordinator begins with: nothing, or the result of an election.
struct Authority {
  std::uint64_t term = 1;
  bool elected = false;
  FirstRound first{};  // not used after an election
  // A node of the round that is dead, as its guardian said, or that left and handed over. It votes no more, and its workers are
  // gone.
  struct Departed {
    NodeId node{};
    std::int32_t rank = 0;
    std::int32_t previous_rank = -1;
  };
  std::optional<Departed> departed{};
  PersistentState known{};  // the newest round that an elector knows
  Roster roster{};          // set if this node released that round
  bool judged = false;      // the budget includes a failure of that round: another one was released for it, and given up
};

}  // namespace ddprun::rendezvous
