// The settings of a new member: its identity, and the addresses where the job may be. node.hpp and the shell fill them in. Also
// copies them into a Hello.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// The time between two pings, as a fraction of the lease. A node that waits for the first round has no workers that need a
// grant, and no majority counts it: its pings only show that it is alive. With ten thousand such nodes, pings would be most of
// the coordinator's work.
inline constexpr double kPing = 0.2;
inline constexpr double kPingBeforeTheFirstRound = 0.4;
// If the previous round had at most this many nodes, a member pings as soon as it has installed the round.
inline constexpr std::int32_t kFewNodes = 8;

struct MemberSettings {
  NodeId id{};
  std::uint64_t incarnation = 0;
  RunDigest run{};
  std::int32_t wanted_group_rank = -1;
  std::string role = "default";
  std::int32_t local_world_size = 1;
  std::string hostname{};
  Address listens{};  // empty host: the local address of the connection to the coordinator
  // An address of this machine. Used if the coordinator is in this process, since no connection to it shows an address. It is
  // the newest address that a connection has shown; before that, a guess of the shell.
  std::string own_host{};
  std::uint16_t master_port = 0;
  std::int32_t next_number = 0;
  std::uint16_t farewell_port = 0;
  FarewellKey farewell_key{};
  std::uint64_t arbiter = 0;        // as in Hello
  std::uint64_t run_directory = 0;  // as in Hello; 0: not yet known
  std::uint64_t command = 0;        // as in Hello
  std::int32_t min_nodes = 0;       // as in Hello
  std::int32_t max_nodes = 0;
  std::vector<Address> endpoints{};  // the job's addresses; empty on the first coordinator's node
  milliseconds lease{5000};          // the default, until a coordinator sends another value
  milliseconds join_timeout{600000};
  milliseconds rejoin_for{
      30000};  // how long a node that lost its coordinator looks for the others before it considers itself the minority
  milliseconds redial{500};
  LinkId first_link = 1;  // for links that it dials; two state machines of one process use different numbers
  Rules rules{};
};

// The part of a Hello that comes from these settings; the rest depends on the node's state.
Hello hello_of(const MemberSettings& settings);

}  // namespace ddprun::rendezvous
