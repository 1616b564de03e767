// The settings of a member (the agent as a follower of the coordinator): its identity, the addresses of the job's nodes, and
// timeouts. node.hpp and the shell set them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// The time between two pings, as a fraction of the lease. Before the first round, kPingWithoutRound applies, because the node
// then has no workers that need a grant, and its vote is not needed for a majority. Pings before the first round only show
// that the node is alive. They are sent less often: with ten thousand waiting nodes, these pings are most of the coordinator's
// work.
inline constexpr double kPing = 0.2;
inline constexpr double kPingWithoutRound = 0.4;
// A round with at most this number of voters is small. After a small previous round, a member pings as soon as its record of
// the new round is on disk (Member::handle(RecordWritten) explains why).
inline constexpr std::int32_t kFewNodes = 8;

// If the host in `listens` is empty, the local address of the connection to the coordinator is used.
struct MemberSettings : NodeDescription {
  // An address of this machine. It is needed if the coordinator runs in this process, because the link to this coordinator has
  // no connection with a local address. The value is the local address of the newest connection to any other node. Before the
  // first connection, the value is an estimate of the shell.
  std::string own_host{};
  // addresses of the job from the command line; empty on the node that starts the job as its coordinator
  std::vector<Address> endpoints{};
  milliseconds lease{5000};  // used until a coordinator sends the value of the job
  milliseconds join_timeout{600000};
  milliseconds rejoin_for{30000};  // how long a node searches for a lost coordinator before it exits as a member of a minority
  milliseconds redial{500};
  LinkId first_link = 1;  // number of the first link that the member dials; two members in one process need separate ranges
  Rules rules{};
};

}  // namespace ddprun::rendezvous
