// Gives all ranks of a group the same shared memory, under any launcher.
//
// Rank 0 creates a memfd (trainer/collectives/shared_memory/segment.hpp) and writes its process and descriptor to the group's
// store. The other ranks open /proc/PID/fd/FD, which the kernel allows to processes of the same user. So no agent and no name
// in a file system is needed. A rank can be unable to open the memory: it is in another container, or runs as another user.
// Or it can't allocate its part. So each rank reports its result in the store, and all ranks use the memory only if all of them
// have it. Each rank allocates its own part, while the others allocate theirs.
//
// Example of the keys, with two ranks:
//     segment  = "BOOT-ID 4026531836 1234 17 1 56789"
//     mapped/0 = "+"
//     mapped/1 = "-rank 1: the shared memory of rank 0 can't be opened: Permission denied"
//
// The first value has the boot ID, the pid namespace, the process, the descriptor, and the memfd's device and inode.
//
// The value "none" of the first key means that rank 0 does not want shared memory. A text after "none" is the reason. So the
// config of rank 0 decides for all ranks, before the ranks can compare their configs.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/collectives/shared_memory/segment.hpp"

namespace ddprun::trainer {

// The address by which another process of this machine finds a memfd.
struct SegmentAddress {
  std::string boot_id;
  std::uint64_t pid_namespace = 0;
  std::int32_t pid = 0;
  int fd = -1;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  bool operator==(const SegmentAddress&) const = default;
};

// Both functions are pure. address_in() returns nullopt if the text has another format.
std::string text_of(const SegmentAddress& address);
std::optional<SegmentAddress> address_in(std::string_view text);

struct Handover {
  std::shared_ptr<const collectives::Segment> segment;  // null if a rank has no access, or if rank 0 wants no shared memory
  std::string reason;                                   // why a rank has no access; the same on all ranks
};

// All ranks of the group must call this. Only this group may use `store`. `data_bytes` is the size of the data area of each
// rank; nullopt if the ranks must not use shared memory. Only the value of rank 0 counts. Throws the store's errors if a rank
// does not call this in time.
Handover share_segment(c10d::Store& store, int rank, int ranks, std::optional<std::uint64_t> data_bytes);

}  // namespace ddprun::trainer
