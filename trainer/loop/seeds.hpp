// Stateless random numbers: a seed is a pure function of the run's seed, the step and the rank (decision 20). So a checkpoint
// stores no generator, and a replayed step draws the same numbers.
#pragma once

#include <cstdint>

namespace ddprun::trainer {

// SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): a bijection in which
// every input bit affects all output bits.
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
