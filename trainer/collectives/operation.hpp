// Operations, their descriptors, and the comparison of the descriptors of all ranks. The code is pure: no I/O, no clock.
//
// Each rank publishes the descriptor of its next operation together with its first phase (exchange.hpp). So every rank can
// compare all descriptors before it uses the data of another rank. All ranks compare the same descriptors, so they report the
// same mismatch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer/layout/element_type.hpp"

namespace ddprun::trainer::collectives {

enum class OperationKind : std::uint8_t {
  kBarrier,
  kBroadcast,
  kAllReduce,
  kReduce,
  kAllGather,
  kGather,
  kReduceScatter,
  kScatter,
  kAllToAll,
};

enum class Reduction : std::uint8_t { kNone, kSum, kProduct, kMin, kMax, kAverage, kAnd, kOr, kXor };

std::string name_of(OperationKind kind);
std::string name_of(Reduction reduction);

inline constexpr int kNoRoot = -1;

// A descriptor lies in shared memory, so it consists of plain bytes.
struct OperationDescriptor {
  OperationKind kind = OperationKind::kBarrier;
  ElementType type = ElementType::kU8;
  Reduction reduction = Reduction::kNone;
  bool exposed = false;         // the other ranks can read the input of this rank at `offset`; not compared
  std::int32_t root = kNoRoot;  // rank, or kNoRoot
  std::uint64_t elements = 0;   // number of elements in the part of each rank
  std::uint64_t offset = 0;     // byte offset of the input in the rank's data area; not compared
};

// Returns a text such as "an all-reduce (sum) of 12 F32 elements".
std::string text_of(const OperationDescriptor& operation);

// Returns nullopt if all ranks make the same operation. Otherwise returns a text with two operations: the operation of rank 0,
// and the operation of the first rank that differs from rank 0.
std::optional<std::string> mismatch_of(std::span<const OperationDescriptor> of_ranks);

}  // namespace ddprun::trainer::collectives
