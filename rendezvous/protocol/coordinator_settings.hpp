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

// What becomes of a job whose round failed. The launcher's restart policy answers; it must be a pure function.
struct Verdict {
  bool restart = false;
  int exit_code = 1;  // when it is not restarted
  std::string why{};  // "restart 1 of 3"
  milliseconds delay{};
  Budget after{};  // restart_count is counted by the coordinator
};
using JudgeFailure = std::function<Verdict(const FailureReport& first, const Budget& before)>;

struct CoordinatorSettings {
  NodeId self{};
  RunDigest run{};
  std::uint64_t arbiter = 0;  // of Hello
  std::int32_t min_nodes = 1;
  std::int32_t max_nodes = 1;
  milliseconds last_call{2000};    // from min_nodes on, how long to wait for more
  milliseconds regroup_call{300};  // after succession, how long to wait for the others
  milliseconds stop_call{250};     // when a node that may leave was asked to stop, how long to wait for others that were
  milliseconds join_timeout{600000};
  // How long the workers of a node may take to end before the others go on without it; a lease at least. The launcher should
  // set it to its shutdown timeout and a margin: what ends later is not stopping, it is stuck.
  milliseconds ready_timeout{90000};
  milliseconds lease{5000};
  std::int32_t max_restarts = 0;  // only passed on: `judge` decides
  JudgeFailure judge{};
  std::string master_addr{};      // as typed; empty: the address of group rank 0's node
  std::uint16_t master_port = 0;  // 0: what group rank 0's node offers
  std::string job{};              // for `ddprun join`
  // A node that is lost that often within the window is set aside for the cool-down.
  int flaps = 4;
  milliseconds flap_window{60000};
  milliseconds cool_down{30000};
  Rules rules{};
};

// When a coordinator that nobody elected may release its first round, where a job of the same name may be running already: with
// so many nodes here that fewer than min_nodes of max_nodes can be elsewhere, no round of them can run.
struct FirstRound {
  std::int32_t nodes = 0;             // with that many here
  std::optional<Time> alone_after{};  // or from then on: whoever leads has called by then
};

// What it begins with: nothing, or what an election gave.
struct Authority {
  std::uint64_t term = 1;
  bool elected = false;
  FirstRound first{};  // unless it was elected
  // A node of the round that is dead, as its guardian said, or has left and handed over: it votes for nobody any more, and its
  // workers are gone.
  struct Departed {
    NodeId node{};
    std::int32_t rank = 0;
    std::int32_t previous_rank = -1;
  };
  std::optional<Departed> departed{};
  Standing known{};  // newest round among the electors
  Roster roster{};   // if this node released that round
};

}  // namespace ddprun::rendezvous
