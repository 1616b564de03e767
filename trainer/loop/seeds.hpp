// Stateless random numbers: the seed of a moment is a pure function of the run's seed and what the moment is (decision 20),
// so a checkpoint has no generator to save and a replayed step draws the same numbers.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

// SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): a bijection that spreads
// every bit.
constexpr std::uint64_t spread_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Seed of the default generator for one rank in one step: dropout draws from it.
constexpr std::uint64_t step_seed(std::uint64_t seed, std::int64_t step, int rank) {
  return spread_bits(spread_bits(spread_bits(seed) ^ static_cast<std::uint64_t>(step)) ^ static_cast<std::uint64_t>(rank));
}

}  // namespace ddprun::trainer
