// Implementation of exchange.hpp.
#include "trainer/collectives/exchange.hpp"

#include <algorithm>
#include <cstring>

#include "common/base/check.hpp"

namespace ddprun::trainer::collectives {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line

}  // namespace

Exchange::Exchange(Transport& transport, const OperationDescriptor& operation, int pieces, const std::byte* input)
    : transport_(transport),
      operation_(operation),
      pieces_(static_cast<std::size_t>(pieces)),
      type_bytes_(static_cast<std::size_t>(bytes_of(operation.type))),
      per_chunk_(transport.slot_bytes() / pieces_ / kAlignment * kAlignment / type_bytes_),
      input_(input) {
  check(per_chunk_ > 0, "a slot has less than one cache line for each rank");
  check(operation.root >= kNoRoot && operation.root < transport.ranks(), "the root of a collective is not a rank of the group");
  const auto offset = has_input(rank()) ? transport.offset_of(input, bytes_of_input()) : std::nullopt;
  operation_.exposed = offset.has_value();
  operation_.offset = offset.value_or(0);
}

void Exchange::run() {
  transport_.start(operation_);
  const bool copies = has_input(rank()) && !operation_.exposed;
  Chunk chunk = chunk_at(0);
  if (copies) write(chunk);
  std::uint32_t phase = transport_.arrive();
  transport_.await_all(phase);
  compare_descriptors();

  std::uint64_t chunks = std::max<std::uint64_t>(1, (operation_.elements + per_chunk_ - 1) / per_chunk_);
  if (all_exposed_) {
    chunk.end = operation_.elements;
    chunks = 1;
  }
  for (std::uint64_t index = 0; index < chunks; ++index) {
    Chunk next;
    std::uint32_t next_phase = phase;
    if (index + 1 < chunks) {
      next = chunk_at(index + 1);
      if (copies) write(next);
      next_phase = transport_.arrive();
    }
    if (index > 0) transport_.await_all(phase);
    if (combines()) {
      combine(chunk);
      transport_.await_all(transport_.arrive());
    }
    read(chunk);
    chunk = next;
    phase = next_phase;
  }
  // The other ranks read exposed inputs, so this rank waits for them before it returns. After a combine step no rank reads
  // inputs any more, so this wait is not needed.
  if (any_exposed_ && !combines()) transport_.await_all(transport_.arrive());
}

void Exchange::write(const Chunk& chunk) {
  for (std::size_t piece = 0; piece < pieces_; ++piece) {
    if (pieces_ > 1 && static_cast<int>(piece) == rank()) continue;
    const std::byte* const from = input_ + (piece * operation_.elements + chunk.begin) * type_bytes_;
    if (chunk.elements() > 0) {
      std::memcpy(in_slot(rank(), static_cast<int>(piece), chunk), from, chunk.elements() * type_bytes_);
    }
  }
}

bool Exchange::has_input(int rank) const {
  const bool only_root = operation_.kind == OperationKind::kBroadcast || operation_.kind == OperationKind::kScatter;
  return operation_.kind != OperationKind::kBarrier && (!only_root || rank == operation_.root);
}

const std::byte* Exchange::input_of(int rank, int piece, const Chunk& chunk) const {
  const std::size_t position = static_cast<std::size_t>(piece) * operation_.elements + chunk.begin;
  if (rank == transport_.rank()) return input_ + position * type_bytes_;
  if (of_ranks_[static_cast<std::size_t>(rank)].exposed) return exposed_input(rank) + position * type_bytes_;
  return in_slot(rank, piece, chunk);
}

std::byte* Exchange::in_slot(int rank, int piece, const Chunk& chunk) const {
  return transport_.slot_of(rank, chunk.slot) + static_cast<std::size_t>(piece) * per_chunk_ * type_bytes_;
}

std::byte* Exchange::exposed_input(int rank) const {
  return transport_.exposed_at(rank, of_ranks_[static_cast<std::size_t>(rank)].offset, bytes_of_input());
}

std::uint64_t Exchange::bytes_of_input() const {
  return pieces_ * operation_.elements * type_bytes_;
}

Chunk Exchange::chunk_at(std::uint64_t index) {
  const std::uint64_t begin = index * per_chunk_;
  return {.begin = begin, .end = std::min(operation_.elements, begin + per_chunk_), .slot = transport_.next_slot()};
}

void Exchange::compare_descriptors() {
  of_ranks_.clear();
  for (int each = 0; each < ranks(); ++each) of_ranks_.push_back(transport_.started_by(each));
  if (const auto mismatch = mismatch_of(of_ranks_)) transport_.fail_mismatch(*mismatch);
  all_exposed_ = operation_.kind != OperationKind::kBarrier;
  for (int each = 0; each < ranks(); ++each) {
    if (!has_input(each)) continue;
    const bool exposed = of_ranks_[static_cast<std::size_t>(each)].exposed;
    all_exposed_ = all_exposed_ && exposed;
    any_exposed_ = any_exposed_ || exposed;
  }
}

}  // namespace ddprun::trainer::collectives
