// Implementation of operation.hpp.
#include "trainer/collectives/operation.hpp"

#include "common/base/check.hpp"

namespace ddprun::trainer::collectives {

std::string name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kBarrier:
      return "barrier";
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kAllReduce:
      return "all-reduce";
    case OperationKind::kReduce:
      return "reduce";
    case OperationKind::kAllGather:
      return "all-gather";
    case OperationKind::kGather:
      return "gather";
    case OperationKind::kReduceScatter:
      return "reduce-scatter";
    case OperationKind::kScatter:
      return "scatter";
    case OperationKind::kAllToAll:
      return "all-to-all";
  }
  check_failed("an operation has an unknown kind");
}

std::string name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kNone:
      return "none";
    case Reduction::kSum:
      return "sum";
    case Reduction::kProduct:
      return "product";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
    case Reduction::kAverage:
      return "average";
    case Reduction::kAnd:
      return "bitwise and";
    case Reduction::kOr:
      return "bitwise or";
    case Reduction::kXor:
      return "bitwise xor";
  }
  check_failed("an operation has an unknown reduction");
}

std::string text_of(const OperationDescriptor& operation) {
  std::string text = name_of(operation.kind);
  if (operation.reduction != Reduction::kNone) text += " (" + name_of(operation.reduction) + ")";
  if (operation.kind == OperationKind::kBarrier) return text;
  text += " of " + std::to_string(operation.elements) + " " + std::string(name_of(operation.type)) + " elements";
  if (operation.root != kNoRoot) text += " with root " + std::to_string(operation.root);
  return text;
}

std::optional<std::string> mismatch_of(std::span<const OperationDescriptor> of_ranks) {
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
    const OperationDescriptor& first = of_ranks[0];
    const OperationDescriptor& other = of_ranks[rank];
    if (other.kind == first.kind && other.type == first.type && other.reduction == first.reduction &&
        other.root == first.root && other.elements == first.elements) {
      continue;
    }
    return "the ranks call different collectives: rank 0 calls " + text_of(first) + ", and rank " + std::to_string(rank) +
           " calls " + text_of(other) + ". All ranks must call the same collectives in the same order";
  }
  return std::nullopt;
}

}  // namespace ddprun::trainer::collectives
