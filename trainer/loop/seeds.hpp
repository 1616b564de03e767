// Seeds of random numbers. In each step, each rank computes a seed for its generator from the run's seed, the step and the
// rank. So a checkpoint need not store the state of a generator, and a repeated step draws the same numbers
// (docs/internals/decisions/parallel/batch-norm-and-generators.md).
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <mutex>

namespace ddprun::trainer {

// Applies the finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). It is a
// bijection in which every input bit affects all output bits. So the seeds of neighboring steps and ranks are unrelated.
constexpr std::uint64_t spread_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Returns the seed of the default generator for one rank in one step.
constexpr std::uint64_t step_seed(std::uint64_t seed, std::int64_t step, int rank) {
  return spread_bits(spread_bits(spread_bits(seed) ^ static_cast<std::uint64_t>(step)) ^ static_cast<std::uint64_t>(rank));
}

// Seeds the device's default generator. Dropout and all other random operations of a task use this generator.
inline void seed_generator(c10::Device device, std::uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace ddprun::trainer
