// The shared memory of the ranks of one machine: a memfd that all of them map. One process creates it and passes the
// descriptor to the other processes. It has no name in a file system. So the kernel frees it when the last process has ended,
// even if that process was killed.
//
// create() compares the size with all limits of memory (memory_reserve.hpp), allocates the pages that all ranks use, and seals
// the size. map() rejects a memfd without these seals. Then each rank allocates the pages of its part with allocate_part():
// its slots and its data area. After all ranks have done so, no access can raise SIGBUS, since a sealed memfd cannot become
// smaller. The ranks allocate at the same time, which takes less time than the allocation of all pages by one rank.
//
// An aborted segment stays aborted. A new group of ranks needs a new segment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "common/system/descriptor.hpp"
#include "trainer/collectives/operation.hpp"
#include "trainer/collectives/shared_memory/peer_process.hpp"
#include "trainer/collectives/shared_memory/segment_layout.hpp"
#include "trainer/collectives/transport.hpp"

namespace ddprun::trainer::collectives {

struct SegmentError {
  std::string message;
};

// The reason why a group was aborted. If there are several reasons, the first reason is stored.
struct AbortCause {
  enum class Kind : std::uint8_t { kNone, kOutside, kLimit, kRankLost, kMismatch };
  Kind kind = Kind::kNone;
  int rank = 0;  // rank that caused the abort
  int by = 0;    // rank that detected the cause; 0 for kOutside
  bool operator==(const AbortCause&) const = default;
};

using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4, "futexes need lock-free words of 4 bytes");

// The part of the control area that belongs to one rank. Only this rank writes it, but other ranks may set the bits of `word`.
struct RankControl {
  alignas(kWordSpacing) Word word;
  // The rank writes its identity before `pid`. `pid` is 0 if no process has attached as this rank.
  alignas(kWordSpacing) std::atomic<std::int32_t> pid;
  std::uint64_t start_time;
  std::uint64_t pid_namespace;
  // There are two descriptors, used in turn: a rank overwrites one only after all ranks have started the next operation.
  alignas(kWordSpacing) OperationDescriptor operations[2];
};
static_assert(sizeof(RankControl) <= kControlBytes);

class Segment {
 public:
  static std::variant<Segment, SegmentError> create(const SegmentSizes& sizes);
  // `ranks` is the number of ranks that the caller expects.
  static std::variant<Segment, SegmentError> map(Descriptor memfd, int ranks);
  // Allocates the pages that belong to one rank. Each rank calls it for itself, before any rank uses its transport.
  std::optional<SegmentError> allocate_part(int rank) const;

  const SegmentLayout& layout() const { return layout_; }
  int ranks() const { return static_cast<int>(layout_.sizes.ranks); }
  int fd() const { return memfd_.get(); }
  std::byte* at(std::uint64_t offset) const { return memory_.get() + offset; }
  RankControl& control_of(int rank) const;
  Word& lane_word_of(int from, int to, LaneEnd end) const;

  // Ends all waits of all ranks. Later waits end immediately too. Any process that maps the segment may call it, from any
  // thread.
  void abort(const AbortCause& cause) const;
  AbortCause abort_cause() const;

 private:
  struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* memory) const;
  };
  Segment(Descriptor memfd, std::unique_ptr<std::byte, Unmap> memory, const SegmentLayout& layout);
  static std::variant<Segment, SegmentError> map_checked(Descriptor memfd, const SegmentLayout& layout);
  struct Header;
  Header& header() const;

  Descriptor memfd_;
  std::unique_ptr<std::byte, Unmap> memory_;
  SegmentLayout layout_;
};

}  // namespace ddprun::trainer::collectives
