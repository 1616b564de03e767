// Implementation of fingerprint.hpp: XXH3, each piece hashed with the hash of those before as its seed.
#include "trainer/data/fingerprint.hpp"

#include <xxhash.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <span>

namespace ddprun::trainer {
namespace {

// Evenly spread: a data set that is mapped is not read for it.
constexpr std::size_t kPieces = 32;
constexpr std::size_t kPieceBytes = std::size_t{1} << 16;

using Bytes = std::span<const std::uint8_t>;

std::uint64_t hashed(std::uint64_t before, Bytes bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), before);
}

Bytes bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::uint8_t*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::uint64_t hash_of(const Dataset& set) {
  std::uint64_t hash = hashed(0, bytes_of(set.labels));
  const Bytes images = bytes_of(set.images);
  if (images.size() <= kPieces * kPieceBytes) return hashed(hash, images);
  const std::size_t last = images.size() - kPieceBytes;
  for (std::size_t piece = 0; piece < kPieces; ++piece) {
    hash = hashed(hash, images.subspan(last / (kPieces - 1) * piece, kPieceBytes));
  }
  return hashed(hash, images.last(kPieceBytes));
}

}  // namespace

std::string fingerprint_of(const Dataset& set) {
  std::string shape;
  for (const std::int64_t size : set.images.sizes()) shape += (shape.empty() ? "" : "x") + std::to_string(size);
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash_of(set)));
  return shape + " " + digits.data();
}

std::string fingerprint_of(const Sources& data) {
  return "train " + data.train->fingerprint() + ", test " + data.test->fingerprint();
}

}  // namespace ddprun::trainer
