// The layout of a segment: the place of each area in the shared memory. The code is pure: all ranks compute the same layout
// from the same sizes. The areas are, in order:
//
//     header     version and sizes, and the cause of an abort
//     controls   per rank: flag word, process, descriptors
//     lanes      per pair of ranks: 2 flag words
//     cells      per pair of ranks: 2 cells
//     slots      per rank: 4 slots
//     data       per rank: the data area
//
// Each word has a separate pair of cache lines, because processors prefetch lines in pairs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::trainer::collectives {

inline constexpr int kMaxLocalRanks = 64;
inline constexpr std::size_t kWordSpacing = 128;
inline constexpr std::size_t kControlBytes = 512;
inline constexpr std::size_t kPageBytes = 4096;

struct SegmentSizes {
  std::uint64_t ranks = 1;
  std::uint64_t slot_bytes = 0;  // multiple of 4 KiB
  std::uint64_t cell_bytes = 0;  // multiple of 4 KiB
  std::uint64_t data_bytes = 0;  // size of the data area of one rank; multiple of 4 KiB
  bool operator==(const SegmentSizes&) const = default;
};

// Returns the sizes for a number of ranks. For up to 8 ranks a slot has 256 KiB, so that the slots fit into a second-level
// cache. For more ranks, the slots are smaller. Rounds `data_bytes` up to whole pages.
SegmentSizes sizes_for(int ranks, std::uint64_t data_bytes);

// All values are byte offsets from the start of the segment.
struct SegmentLayout {
  SegmentSizes sizes;
  std::uint64_t controls = 0;
  std::uint64_t lanes = 0;
  std::uint64_t cells = 0;
  std::uint64_t slots = 0;
  std::uint64_t data = 0;
  std::uint64_t total = 0;

  std::uint64_t control_of(int rank) const;
  std::uint64_t lane_word_of(int from, int to, bool receiver) const;
  std::uint64_t cell_of(int from, int to, std::size_t cell) const;
  std::uint64_t slot_of(int rank, std::size_t slot) const;
  std::uint64_t data_of(int rank) const;
};

// Returns the layout; nullopt if a size is out of range. A layout is for 1 to 64 ranks, and has at most 2^46 bytes. All areas
// consist of whole pages. A slot or cell has at least one page.
std::optional<SegmentLayout> layout_of(const SegmentSizes& sizes);

}  // namespace ddprun::trainer::collectives
