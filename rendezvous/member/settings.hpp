// What a new member is given: its identity, and the addresses at which the job should be. node.hpp and the shell fill it in.
// Values, and how they go into a Hello.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// The time between two pings, as a part of the lease. A node that waits for the first round has no workers that need a grant,
// and no majority counts it: it only shows that it is here. With ten thousand such nodes, pings would soon be most of the
// coordinator's work.
inline constexpr double kPing = 0.2;
inline constexpr double kPingBeforeTheFirstRound = 0.4;
// In a round after one of so few nodes, a member pings as soon as it has installed it.
inline constexpr std::int32_t kFewNodes = 8;

struct MemberSettings {
  NodeId id{};
  std::uint64_t incarnation = 0;
  RunDigest run{};
  std::int32_t wanted_group_rank = -1;
  std::string role = "default";
  std::int32_t local_world_size = 1;
  std::string hostname{};
  Address listens{};  // empty host: the address of the socket that leads to the coordinator
  // An address of this machine, for the coordinator of this node's own process, to which no socket leads. The newest one that
  // a connection has shown; until then one that the shell guesses.
  std::string own_host{};
  std::uint16_t master_port = 0;
  std::int32_t next_number = 0;
  std::uint16_t farewell_port = 0;
  FarewellKey farewell_key{};
  std::uint64_t arbiter = 0;        // as in Hello
  std::uint64_t run_directory = 0;  // as in Hello; 0: not known yet
  std::uint64_t command = 0;        // as in Hello
  std::int32_t min_nodes = 0;       // as in Hello
  std::int32_t max_nodes = 0;
  std::vector<Address> endpoints{};  // the job's addresses; empty on the node that coordinates first
  milliseconds lease{5000};          // until a coordinator sends another value
  milliseconds join_timeout{600000};
  milliseconds rejoin_for{
      30000};  // how long a node that lost its coordinator looks for the others before it counts itself as the minority
  milliseconds redial{500};
  LinkId first_link = 1;  // for links that it dials; two state machines of one process use different numbers
  Rules rules{};
};

// The part of a Hello that comes from these settings; the rest depends on the node's state.
Hello hello_of(const MemberSettings& settings);

}  // namespace ddprun::rendezvous
