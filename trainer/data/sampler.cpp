// The pure functions of sampler.hpp; the loader and the evaluation call them. The permutation itself is LibTorch's, so that it
// is Python's for the same seed.
#include "trainer/data/sampler.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <algorithm>

namespace ddprun::trainer {

std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch) {
  at::Generator generator = at::detail::createCPUGenerator(seed + static_cast<std::uint64_t>(epoch));
  const at::Tensor order = at::randperm(n, generator, at::TensorOptions().dtype(at::kLong));
  const auto* first = order.const_data_ptr<std::int64_t>();
  return {first, first + n};
}

std::vector<std::int64_t> share_of_batch(const std::vector<std::int64_t>& order, std::int64_t position, std::int64_t size,
                                         int world, int rank) {
  std::vector<std::int64_t> share(static_cast<std::size_t>(share_size(size, world, rank)));
  auto next = static_cast<std::size_t>(position + rank);
  for (std::int64_t& sample : share) {
    sample = order[next];
    next += static_cast<std::size_t>(world);
  }
  return share;
}

std::int64_t share_size(std::int64_t size, int world, int rank) {
  return size <= rank ? 0 : (size - rank + world - 1) / world;
}

std::int64_t steps_per_epoch(std::int64_t n, std::int64_t batch_size) {
  return (n + batch_size - 1) / batch_size;
}

Block evaluation_block(std::int64_t n, int world, int rank) {
  // The first n % world ranks take one sample more.
  const std::int64_t base = n / world;
  const std::int64_t surplus = n % world;
  const std::int64_t first = rank * base + std::min<std::int64_t>(rank, surplus);
  return {first, first + base + (rank < surplus ? 1 : 0)};
}

}  // namespace ddprun::trainer
