// Collectives between the ranks of one machine, through shared memory. Call them in the same order on all ranks. Each call
// returns when the result is complete and the caller may change its buffers. All of them throw CollectiveError (transport.hpp).
//
// The problem. Gloo sends each gradient over loopback TCP, although the ranks share the memory of one machine. It sums elements
// in an order that depends on their position in the bucket. It can't be aborted: after a rank was lost, the other ranks must
// close sockets to leave a collective (docs/internals/decisions/recovery/gloo-has-no-abort.md). Earlier attempts at shared
// memory failed on details: waits without a limit, names that remain after a kill, missing fences on ARM.
//
// The idea. All ranks map one segment of memory without a name (shared_memory/segment.hpp). Each rank has one flag word, which
// counts its phases (flag_word.hpp). A collective is a sequence of phases (exchange.hpp). Example: an all-reduce of the buffers
// [1 2 3 4] of rank 0 and [5 6 7 8] of rank 1, both inside the segment:
//
//     rank 0                                    rank 1
//     publishes "all-reduce, sum, 4" (4)        publishes the same (4)
//     waits until the word of rank 1 is 4       waits until the word of rank 0 is 4
//     compares the descriptors                  compares the descriptors
//     adds elements 0 and 1 of both buffers,    adds elements 2 and 3 of both buffers,
//     writes 6 8 into both buffers              writes 10 12 into both buffers
//     publishes (8), waits for rank 1           publishes (8), waits for rank 0
//
// Buffers outside the segment are copied through slots, chunk by chunk.
//
// How it can go wrong:
//  - A rank is lost, stopped or slow. Each wait ends with an error that names the rank: when a wait exceeds its limit, when the
//    process of the rank has ended, or when the agent aborts the group. The first error aborts the group for all ranks.
//  - Ranks make different calls. All ranks get the same error, before any data of another rank is used.
//  - A rank overwrites data that another rank still reads. exchange.hpp explains why this can't happen.
//  - A flag is visible before its data. tests/trainer/collectives/flag_model_test.cpp checks all executions of 2 and 3 ranks.
//
// The cost of an all-reduce with W ranks: in place, 2 phases, and each byte of W buffers is read and written once. Copied: 1
// phase up to 16 KiB, and 2 phases per chunk above.
//
// Decisions: docs/internals/decisions/parallel/own-collectives.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/collectives/transport.hpp"

namespace ddprun::trainer::collectives {

// Returns when all ranks have called this function.
void barrier(Transport& transport);

// Copies `data` of rank `root` to all ranks.
void broadcast(Transport& transport, ElementType type, std::byte* data, std::uint64_t elements, int root);

// Replaces `data` by its reduction over all ranks, in the order of ranks (reduction.hpp).
void all_reduce(Transport& transport, ElementType type, Reduction reduction, std::byte* data, std::uint64_t elements);
// Does the same as all_reduce(), but only on rank `root`. The data of the other ranks is not changed.
void reduce(Transport& transport, ElementType type, Reduction reduction, std::byte* data, std::uint64_t elements, int root);

// In the following functions, `elements` is the number of elements of one part, and a buffer of several parts has one part per
// rank, in the order of ranks. Inputs and outputs must not overlap, unless the comment permits it.

// Copies the part of each rank to all ranks. `part` may be this rank's own part of `parts`.
void all_gather(Transport& transport, ElementType type, const std::byte* part, std::byte* parts, std::uint64_t elements);
// Does the same as all_gather(), but only on rank `root`. The other ranks pass nullptr as `parts`.
void gather(Transport& transport, ElementType type, const std::byte* part, std::byte* parts, std::uint64_t elements, int root);

// Reduces `parts` over all ranks. Each rank gets its own part of the result.
void reduce_scatter(Transport& transport, ElementType type, Reduction reduction, const std::byte* parts, std::byte* part,
                    std::uint64_t elements);

// Copies one part of rank `root` to each rank. The other ranks pass nullptr as `parts`.
void scatter(Transport& transport, ElementType type, const std::byte* parts, std::byte* part, std::uint64_t elements, int root);

// Sends part i of `from` to rank i.
void all_to_all(Transport& transport, ElementType type, const std::byte* from, std::byte* to, std::uint64_t elements);
// Does the same with parts of different sizes: sends `sent[i]` elements to rank i, and receives `received[i]` elements from
// rank i.
void all_to_all(Transport& transport, ElementType type, const std::byte* from, std::span<const std::uint64_t> sent,
                std::byte* to, std::span<const std::uint64_t> received);

}  // namespace ddprun::trainer::collectives
