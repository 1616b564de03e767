// Implementation of fingerprint.hpp: XXH3 over the pieces, where the hash of the earlier pieces seeds the next hash.
#include "trainer/data/fingerprint.hpp"

#include <xxhash.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <span>

namespace ddprun::trainer {
namespace {

// Evenly spaced pieces: the fingerprint of a mapped data set does not read the whole file.
constexpr std::size_t kPieces = 32;
constexpr std::size_t kPieceBytes = std::size_t{1} << 16;

using Bytes = std::span<const std::uint8_t>;

std::uint64_t hashed(std::uint64_t before, Bytes bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), before);
}

Bytes bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::uint8_t*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::uint64_t hashed_pieces(std::uint64_t before, Bytes bytes) {
  if (bytes.size() <= kPieces * kPieceBytes) return hashed(before, bytes);
  std::uint64_t hash = before;
  const std::size_t last = bytes.size() - kPieceBytes;
  for (std::size_t piece = 0; piece < kPieces; ++piece) {
    hash = hashed(hash, bytes.subspan(last / (kPieces - 1) * piece, kPieceBytes));
  }
  return hashed(hash, bytes.last(kPieceBytes));
}

std::string digits_of(std::uint64_t hash) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
  return digits.data();
}

}  // namespace

std::string fingerprint_of(const Dataset& set) {
  std::string shape;
  for (const std::int64_t size : set.images.sizes()) shape += (shape.empty() ? "" : "x") + std::to_string(size);
  return shape + " " + digits_of(hashed_pieces(hashed(0, bytes_of(set.labels)), bytes_of(set.images)));
}

std::string fingerprint_of(std::string_view bytes) {
  return digits_of(hashed_pieces(0, {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}));
}

std::string fingerprint_of(const Sources& data) {
  return "train " + data.train->fingerprint() + ", test " + data.test->fingerprint();
}

}  // namespace ddprun::trainer
