// What a starting agent is told about earlier processes of its job on this machine: the identity and promises that it takes
// over, or only that a job of this name may be running elsewhere. By that node.hpp decides whether it may lead without an
// election; the shell reads it from disk. Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/member/record.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

struct Memory {
  // An earlier process, which this one continues.
  struct Self {
    NodeId id{};
    Record record{};
    std::uint64_t incarnation = 0;  // of the process that wrote the record
  };
  std::optional<Self> self{};
  // There was an earlier process, and its promises are lost. Only one thing is known of its job: it may continue elsewhere.
  bool job_elsewhere = false;
  std::vector<Address> places{};  // addresses of that job's nodes
  // False: the place of the record is new itself (the first start in a container), so a missing record proves nothing.
  bool kept = true;
};

}  // namespace ddprun::rendezvous
