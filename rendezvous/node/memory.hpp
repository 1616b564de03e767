// The memory of earlier processes of a job on this machine, for a starting agent. It holds the identity and promises that the
// agent takes over, or only the fact that a job of this name may be running elsewhere. node.hpp uses it to decide whether it
// may lead without an election; the shell reads it from disk. Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/member/record.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

struct Memory {
  // An earlier process that this one continues.
  struct Self {
    NodeId id{};
    Record record{};
    std::uint64_t incarnation = 0;  // the process that wrote the record
  };
  std::optional<Self> self{};
  // There was an earlier process, but its promises are lost. All that is known of its job is that it may continue elsewhere.
  bool job_elsewhere = false;
  std::vector<Address> places{};  // addresses of that job's nodes
  // False if the folder of the record is new itself (the first start in a container), so that a missing record proves nothing
  bool kept = true;
};

}  // namespace ddprun::rendezvous
