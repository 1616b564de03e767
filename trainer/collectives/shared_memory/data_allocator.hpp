// Allocates buffers in the data area of a rank, as offsets. The class is pure and deterministic: ranks that make the same
// calls in the same order get the same offsets. A buffer gets the first gap that is large enough. Its size is rounded up to
// whole cache lines. The class is not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace ddprun::trainer::collectives {

class DataAllocator {
 public:
  explicit DataAllocator(std::uint64_t bytes);
  // Allocates a buffer that is aligned to a cache line, and returns its offset. Returns nullopt if no gap is large enough.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes);
  // `offset` must come from allocate().
  void release(std::uint64_t offset);
  std::uint64_t free_bytes() const;

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // size of each gap by its offset
  std::map<std::uint64_t, std::uint64_t> used_;  // size of each buffer by its offset
};

}  // namespace ddprun::trainer::collectives
