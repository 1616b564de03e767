// Implementation of segment.hpp.
#include "trainer/collectives/shared_memory/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "common/base/check.hpp"
#include "trainer/collectives/flag_word.hpp"
#include "trainer/collectives/shared_memory/futex.hpp"
#include "trainer/collectives/shared_memory/memory_reserve.hpp"

namespace ddprun::trainer::collectives {
namespace {

constexpr std::uint64_t kMagic = 0x6c6c6f6370646464;  // "dddpcoll", little endian
constexpr std::uint64_t kVersion = 1;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

SegmentError failed(const char* call) {
  return {std::string("the shared memory of the ranks needs ") + call + ", which failed: " + std::strerror(errno)};
}

std::uint32_t encoded(const AbortCause& cause) {
  return static_cast<std::uint32_t>(cause.kind) << 24 | static_cast<std::uint32_t>(cause.by & 0xfff) << 12 |
         static_cast<std::uint32_t>(cause.rank & 0xfff);
}

}  // namespace

struct Segment::Header {
  std::uint64_t magic;
  std::uint64_t version;
  SegmentSizes sizes;
  alignas(kWordSpacing) std::atomic<std::uint32_t> cause;
};

void Segment::Unmap::operator()(std::byte* memory) const {
  ::munmap(memory, bytes);
}

Segment::Segment(Descriptor memfd, std::unique_ptr<std::byte, Unmap> memory, const SegmentLayout& layout)
    : memfd_(std::move(memfd)), memory_(std::move(memory)), layout_(layout) {}

std::variant<Segment, SegmentError> Segment::create(const SegmentSizes& sizes) {
  const std::optional<SegmentLayout> layout = layout_of(sizes);
  if (!layout) {
    return SegmentError{"a segment needs 1 to " + std::to_string(kMaxLocalRanks) + " ranks and sizes in whole pages, but has " +
                        std::to_string(sizes.ranks) + " ranks and " + std::to_string(sizes.data_bytes) + " bytes per rank"};
  }
  Descriptor memfd(::memfd_create("ddprun-collectives", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memfd.get() < 0) return failed("memfd_create");
  if (const auto refusal = size_memory(memfd.get(), layout->total)) return SegmentError{*refusal};
  if (const auto refusal = allocate_memory(memfd.get(), 0, layout->slots)) return SegmentError{*refusal};
  if (::fcntl(memfd.get(), F_ADD_SEALS, kSeals) != 0) return failed("fcntl(F_ADD_SEALS)");
  auto result = map_checked(std::move(memfd), *layout);
  if (const Segment* const segment = std::get_if<Segment>(&result)) {
    // All other words are 0, which is the state before the first phase.
    Header& header = segment->header();
    header.magic = kMagic;
    header.version = kVersion;
    header.sizes = sizes;
  }
  return result;
}

std::variant<Segment, SegmentError> Segment::map(Descriptor memfd, int ranks) {
  struct stat status {};
  if (::fstat(memfd.get(), &status) != 0) return failed("fstat");
  const int seals = ::fcntl(memfd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return SegmentError{
        "the descriptor of the shared memory is not a memfd with a sealed size. Pass the descriptor that the "
        "creator of the segment has sent"};
  }
  if (status.st_size < static_cast<off_t>(kPageBytes)) {
    return SegmentError{"the shared memory of the ranks has " + std::to_string(status.st_size) + " bytes, less than a header"};
  }
  void* const page = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, memfd.get(), 0);
  if (page == MAP_FAILED) return failed("mmap");
  std::uint64_t magic = 0, version = 0;
  SegmentSizes sizes;
  std::memcpy(&magic, static_cast<std::byte*>(page) + offsetof(Header, magic), sizeof(magic));
  std::memcpy(&version, static_cast<std::byte*>(page) + offsetof(Header, version), sizeof(version));
  std::memcpy(&sizes, static_cast<std::byte*>(page) + offsetof(Header, sizes), sizeof(sizes));
  ::munmap(page, kPageBytes);

  if (magic != kMagic || version != kVersion) {
    return SegmentError{"the shared memory of the ranks has version " + std::to_string(magic == kMagic ? version : 0) +
                        ", expected " + std::to_string(kVersion) + ". Start all ranks with the same version of ddprun"};
  }
  if (sizes.ranks != static_cast<std::uint64_t>(ranks)) {
    return SegmentError{"the shared memory was created for " + std::to_string(sizes.ranks) + " ranks, but this group has " +
                        std::to_string(ranks) + ". Pass the segment of this group"};
  }
  const std::optional<SegmentLayout> layout = layout_of(sizes);
  if (!layout || static_cast<std::uint64_t>(status.st_size) != layout->total) {
    return SegmentError{"the shared memory of the ranks has " + std::to_string(status.st_size) + " bytes, expected " +
                        (layout ? std::to_string(layout->total) : "valid sizes in its header")};
  }
  return map_checked(std::move(memfd), *layout);
}

std::variant<Segment, SegmentError> Segment::map_checked(Descriptor memfd, const SegmentLayout& layout) {
  static_assert(sizeof(Header) <= kPageBytes);
  void* const address = ::mmap(nullptr, layout.total, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  if (address == MAP_FAILED) return failed("mmap");
  return Segment(std::move(memfd), {static_cast<std::byte*>(address), Unmap{layout.total}}, layout);
}

std::optional<SegmentError> Segment::allocate_part(int rank) const {
  check(rank >= 0 && rank < ranks(), "a rank is outside this segment");
  for (const auto& [begin, bytes] : {std::pair{layout_.slot_of(rank, 0), kSlots * layout_.sizes.slot_bytes},
                                     std::pair{layout_.data_of(rank), layout_.sizes.data_bytes}}) {
    if (const auto refusal = allocate_memory(memfd_.get(), begin, bytes)) return SegmentError{*refusal};
  }
  return std::nullopt;
}

Segment::Header& Segment::header() const {
  return *std::launder(reinterpret_cast<Header*>(memory_.get()));
}

RankControl& Segment::control_of(int rank) const {
  check(rank >= 0 && rank < ranks(), "a rank is outside this segment");
  return *std::launder(reinterpret_cast<RankControl*>(at(layout_.control_of(rank))));
}

Word& Segment::lane_word_of(int from, int to, LaneEnd end) const {
  return *std::launder(reinterpret_cast<Word*>(at(layout_.lane_word_of(from, to, end == LaneEnd::kReceiver))));
}

void Segment::abort(const AbortCause& cause) const {
  std::uint32_t none = 0;
  header().cause.compare_exchange_strong(none, encoded(cause), std::memory_order_acq_rel);
  for (int rank = 0; rank < ranks(); ++rank) {
    abort_word(control_of(rank).word, futex_wake_all);
    for (int other = 0; other < ranks(); ++other) {
      abort_word(lane_word_of(rank, other, LaneEnd::kSender), futex_wake_all);
      abort_word(lane_word_of(rank, other, LaneEnd::kReceiver), futex_wake_all);
    }
  }
}

AbortCause Segment::abort_cause() const {
  const std::uint32_t bits = header().cause.load(std::memory_order_acquire);
  return {.kind = static_cast<AbortCause::Kind>(bits >> 24),
          .rank = static_cast<int>(bits & 0xfff),
          .by = static_cast<int>(bits >> 12 & 0xfff)};
}

}  // namespace ddprun::trainer::collectives
