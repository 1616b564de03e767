// The state that earlier processes of this job have left on this machine. This state contains either a node id with its
// record, or only the fact that a job of this name might still be running elsewhere. The shell reads the state from disk when
// the agent starts. Node (node.hpp) uses it to decide whether it may lead without an election.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/member/record.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

struct RestoredState {
  // The node id and the record of an earlier process. This process continues to use them.
  struct Identity {
    NodeId id{};
    Record record{};
    std::uint64_t incarnation = 0;  // start time of the process that wrote the record
  };
  std::optional<Identity> self{};
  // True if the record of an earlier process is lost. Its job might still be running elsewhere.
  bool job_elsewhere = false;
  std::vector<Address> addresses{};  // known addresses of the nodes of the earlier job
  // False if even the folder of the record is new, for example in a new container. A missing record then does not prove that no
  // job is running.
  bool had_storage = true;
};

}  // namespace ddprun::rendezvous
