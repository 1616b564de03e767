// Implementation of data_allocator.hpp.
#include "trainer/collectives/shared_memory/data_allocator.hpp"

#include <algorithm>
#include <iterator>

#include "common/base/check.hpp"

namespace ddprun::trainer::collectives {
namespace {

constexpr std::uint64_t kLine = 64;

}  // namespace

DataAllocator::DataAllocator(std::uint64_t bytes) {
  if (bytes >= kLine) free_.emplace(0, bytes / kLine * kLine);
}

std::optional<std::uint64_t> DataAllocator::allocate(std::uint64_t bytes) {
  if (bytes > free_bytes()) return std::nullopt;  // this check also prevents an overflow in the next line
  const std::uint64_t size = std::max<std::uint64_t>(1, (bytes + kLine - 1) / kLine) * kLine;
  const auto gap = std::find_if(free_.begin(), free_.end(), [&](const auto& each) { return each.second >= size; });
  if (gap == free_.end()) return std::nullopt;
  const auto [offset, length] = *gap;
  free_.erase(gap);
  if (length > size) free_.emplace(offset + size, length - size);
  used_.emplace(offset, size);
  return offset;
}

void DataAllocator::release(std::uint64_t offset) {
  const auto buffer = used_.find(offset);
  check(buffer != used_.end(), "a buffer of the data area is released, but it is not allocated");
  auto gap = free_.emplace(offset, buffer->second).first;
  used_.erase(buffer);
  if (const auto next = std::next(gap); next != free_.end() && gap->first + gap->second == next->first) {
    gap->second += next->second;
    free_.erase(next);
  }
  if (gap == free_.begin()) return;
  const auto previous = std::prev(gap);
  if (previous->first + previous->second != gap->first) return;
  previous->second += gap->second;
  free_.erase(gap);
}

std::uint64_t DataAllocator::free_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [offset, size] : free_) sum += size;
  return sum;
}

}  // namespace ddprun::trainer::collectives
