// Implementation of segment_layout.hpp.
#include "trainer/collectives/shared_memory/segment_layout.hpp"

#include <algorithm>

#include "trainer/collectives/transport.hpp"

namespace ddprun::trainer::collectives {
namespace {

constexpr std::uint64_t kLargestPart = std::uint64_t{1} << 40;
constexpr std::uint64_t kLargestTotal = std::uint64_t{1} << 46;
constexpr std::size_t kCellsPerLane = 2;

constexpr std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

SegmentSizes sizes_for(int ranks, std::uint64_t data_bytes) {
  const auto count = static_cast<std::uint64_t>(std::clamp(ranks, 1, kMaxLocalRanks));
  return {.ranks = static_cast<std::uint64_t>(ranks),
          .slot_bytes = std::clamp<std::uint64_t>(whole_pages((2 << 20) / count), 64 << 10, 256 << 10),
          .cell_bytes = std::clamp<std::uint64_t>(whole_pages((4 << 20) / (count * count)), kPageBytes, 64 << 10),
          .data_bytes = whole_pages(std::min(data_bytes, kLargestPart))};
}

std::optional<SegmentLayout> layout_of(const SegmentSizes& sizes) {
  if (sizes.ranks < 1 || sizes.ranks > kMaxLocalRanks) return std::nullopt;
  for (const std::uint64_t part : {sizes.slot_bytes, sizes.cell_bytes, sizes.data_bytes}) {
    if (part % kPageBytes != 0 || part > kLargestPart) return std::nullopt;
  }
  if (sizes.slot_bytes == 0 || sizes.cell_bytes == 0) return std::nullopt;
  const std::uint64_t pairs = sizes.ranks * sizes.ranks;
  // The checks above limit all factors, so the sums are below 2^64. `pairs * cell_bytes` is at most 2^52.
  SegmentLayout layout{.sizes = sizes};
  layout.controls = kPageBytes;
  layout.lanes = layout.controls + whole_pages(sizes.ranks * kControlBytes);
  layout.cells = layout.lanes + whole_pages(pairs * 2 * kWordSpacing);
  layout.slots = layout.cells + pairs * kCellsPerLane * sizes.cell_bytes;
  layout.data = layout.slots + sizes.ranks * kSlots * sizes.slot_bytes;
  layout.total = layout.data + sizes.ranks * sizes.data_bytes;
  if (layout.total > kLargestTotal) return std::nullopt;
  return layout;
}

std::uint64_t SegmentLayout::control_of(int rank) const {
  return controls + static_cast<std::uint64_t>(rank) * kControlBytes;
}

std::uint64_t SegmentLayout::lane_word_of(int from, int to, bool receiver) const {
  const std::uint64_t pair = static_cast<std::uint64_t>(from) * sizes.ranks + static_cast<std::uint64_t>(to);
  return lanes + (pair * 2 + (receiver ? 1 : 0)) * kWordSpacing;
}

std::uint64_t SegmentLayout::cell_of(int from, int to, std::size_t cell) const {
  const std::uint64_t pair = static_cast<std::uint64_t>(from) * sizes.ranks + static_cast<std::uint64_t>(to);
  return cells + (pair * kCellsPerLane + cell) * sizes.cell_bytes;
}

std::uint64_t SegmentLayout::slot_of(int rank, std::size_t slot) const {
  return slots + (static_cast<std::uint64_t>(rank) * kSlots + slot) * sizes.slot_bytes;
}

std::uint64_t SegmentLayout::data_of(int rank) const {
  return data + static_cast<std::uint64_t>(rank) * sizes.data_bytes;
}

}  // namespace ddprun::trainer::collectives
