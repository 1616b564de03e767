// What an agent is told when it starts of earlier processes of its job on this machine: whose identity and promises it takes
// over, or only that a job of this name may be running elsewhere. node.hpp decides by it who may lead without an election; the
// shell reads it from disk. Values only.
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
    std::uint64_t incarnation = 0;  // of the process that wrote it
  };
  std::optional<Self> self{};
  // There was one, and what it promised is lost: nothing is to be believed of its job but that it may go on without it.
  bool job_elsewhere = false;
  std::vector<Address> places{};  // where nodes of that job were
  // False: what this is read from is new itself (the first start in a container), so that nothing in it says nothing.
  bool kept = true;
};

}  // namespace ddprun::rendezvous
