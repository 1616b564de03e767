// Divides the bytes of a file among the ranks of one machine, and schedules the exchange of the parts. Each rank needs all
// bytes, but each byte is read from the file only once. trainer/resume/divided_read.cpp uses this code. The code is pure: no
// I/O, no clock.
//
// The problem. A replicated state is needed in full on every rank. If each rank reads the checkpoint, a machine with 8 ranks
// reads it 8 times.
//
// The idea. The file is read in windows of bounded size. Each rank reads a part of the window, and then exchanges parts with
// each other rank. The exchange is a round-robin tournament: in each round the ranks form pairs, and the two ranks of a pair
// exchange their parts. Example: 4 ranks, 3 rounds.
//
//     round 0    0 with 3    1 with 2
//     round 1    0 with 1    2 with 3
//     round 2    0 with 2    1 with 3
//
// Why bytes of the file and not pieces of a StateLayout (plan_loading() in transfer_plan.hpp). The state of AdamW has three
// tensors per parameter, one of which has 4 bytes. With a message per piece, a model with many small tensors would spend its
// time on messages. The checksum in the manifest also covers the bytes of a file in their order.
//
// The cost. With n ranks, each rank sends and receives (n - 1) / n of the file. No two messages of a round have the same sender
// or receiver. If one rank sent its part to all others before the next rank did, the transfers would run one after another.
#pragma once

#include <cstdint>
#include <optional>

namespace ddprun::trainer {

struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

// Returns the part of a window of `bytes` bytes that `member` reads. `member` is at least 0 and less than `members`. The parts
// are in the order of the members and cover the window exactly once. Their sizes differ by at most one byte, so a part may be
// empty.
ByteRange part_of(std::int64_t bytes, int member, int members);

// Returns the number of rounds after which each member has exchanged parts with each other member.
int exchange_rounds(int members);

// Returns the member with which `member` exchanges parts in `round`; nullopt if it has no partner in this round, which happens
// only if `members` is odd. The relation is symmetric.
std::optional<int> partner_in(int round, int member, int members);

}  // namespace ddprun::trainer
