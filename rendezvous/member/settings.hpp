// What a member is told when it is made: who it is, and where the job was said to be. node.hpp and the shell fill it in.
// Values, and what they are in a hello.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"
#include "rendezvous/protocol/rules.hpp"

namespace ddprun::rendezvous {

// Parts of the lease between two pings. Who waits for the first round has no workers that need a grant and counts in nobody's
// majority: it only shows that it is here. Of ten thousand that wait, pings would soon be most of the coordinator's work.
inline constexpr double kPing = 0.2;
inline constexpr double kPingBeforeTheFirstRound = 0.4;

struct MemberSettings {
  NodeId id{};
  std::uint64_t incarnation = 0;
  RunDigest run{};
  std::int32_t wanted_group_rank = -1;
  std::string role = "default";
  std::int32_t local_world_size = 1;
  std::string hostname{};
  Address listens{};  // host empty: the address of the socket that reaches the coordinator
  std::uint16_t master_port = 0;
  std::int32_t next_number = 0;
  std::uint16_t farewell_port = 0;
  FarewellKey farewell_key{};
  std::uint64_t arbiter = 0;         // of Hello
  std::uint64_t run_directory = 0;   // of Hello; 0: not known yet
  std::vector<Address> endpoints{};  // where the job was said to be; empty on the node that coordinates first
  bool wants_job = false;
  milliseconds lease{5000};  // until a coordinator says another
  milliseconds join_timeout{600000};
  milliseconds rejoin_for{30000};  // how long a node whose coordinator was lost looks for the others: then it is the minority
  milliseconds redial{500};
  LinkId first_link = 1;  // of those that it dials: of two machines of one process each has its own
  Rules rules{};
};

// What they say of a node; the rest of its hello depends on where it stands.
Hello hello_of(const MemberSettings& settings);

}  // namespace ddprun::rendezvous
