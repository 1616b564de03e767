// The pure functions of sampler.hpp, called by the loader and the evaluation. LibTorch makes the permutation, so PyTorch in
// Python makes the same permutation from the same seed.
#include "trainer/data/sampler.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ddprun::trainer {
namespace {

// Returns a random number in the open interval (0, 1).
double between_0_and_1(at::Philox4_32& philox) {
  return (static_cast<double>(philox()) + 0.5) / 4294967296.0;
}

// Returns a random number of the standard normal distribution, by the method of Box and Muller.
double normal_number(at::Philox4_32& philox) {
  const double radius = std::sqrt(-2 * std::log(between_0_and_1(philox)));
  return radius * std::cos(2 * std::numbers::pi * between_0_and_1(philox));
}

// Returns the logarithm of a random number of the Gamma(shape, 1) distribution, by the method of Marsaglia and Tsang. The
// number itself may be too small for a double.
double log_of_gamma(at::Philox4_32& philox, double shape) {
  if (shape < 1) {
    const double of_larger = log_of_gamma(philox, shape + 1);
    return of_larger + std::log(between_0_and_1(philox)) / shape;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal_number(philox), t = 1 + c * x, v = t * t * t;
    if (v <= 0) continue;
    if (std::log(between_0_and_1(philox)) < x * x / 2 + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

}  // namespace

std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch) {
  at::Generator generator = at::detail::createCPUGenerator(seed + static_cast<std::uint64_t>(epoch));
  const at::Tensor order = at::randperm(n, generator, at::TensorOptions().dtype(at::kLong));
  const auto* first = order.const_data_ptr<std::int64_t>();
  return {first, first + n};
}

std::int64_t mixed_with(std::int64_t place, std::int64_t size) {
  return (place + size - 1) % size;
}

float own_part(double alpha, std::uint64_t seed, std::int64_t epoch, std::int64_t position) {
  // This constant is combined with the seed, so that mixup draws different numbers than augmentation, which uses the seed
  // itself.
  constexpr std::uint64_t kMixup = 0x6d6978757000;
  // Philox blocks (four numbers each) that are reserved for one epoch; one call uses about ten numbers.
  constexpr std::uint64_t kBlocksOfEpoch = 1 << 16;
  // Minimum alpha. With a smaller alpha, the result is practically always 0 or 1.
  constexpr double kSmallest = 1e-6;
  at::Philox4_32 philox(seed ^ kMixup, static_cast<std::uint64_t>(position),
                        kBlocksOfEpoch * static_cast<std::uint64_t>(epoch));
  const double shape = std::max(alpha, kSmallest);
  const double one = log_of_gamma(philox, shape), other = log_of_gamma(philox, shape);
  return static_cast<float>(1 / (1 + std::exp(other - one)));
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
  // The first n % world ranks take one additional sample.
  const std::int64_t base = n / world;
  const std::int64_t surplus = n % world;
  const std::int64_t first = rank * base + std::min<std::int64_t>(rank, surplus);
  return {first, first + base + (rank < surplus ? 1 : 0)};
}

}  // namespace ddprun::trainer
