// Implementation of fingerprint.hpp. The data is hashed in pieces with XXH3; the hash of the earlier pieces is the seed for the
// next piece.
#include "trainer/data/fingerprint.hpp"

#include <xxhash.h>

#include <array>
#include <cstdint>
#include <cstdio>

namespace ddprun::trainer {
namespace {

std::uint64_t hashed(std::uint64_t before, std::string_view bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), before);
}

std::uint64_t hashed_pieces(std::uint64_t before, std::string_view bytes) {
  for (const std::string_view piece : spread_pieces(bytes)) before = hashed(before, piece);
  return before;
}

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::string digits_of(std::uint64_t hash) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
  return digits.data();
}

}  // namespace

std::vector<std::string_view> spread_pieces(std::string_view bytes) {
  constexpr std::size_t kPieces = 32;
  constexpr std::size_t kPieceBytes = std::size_t{1} << 16;
  if (bytes.size() <= kPieces * kPieceBytes) return {bytes};
  std::vector<std::string_view> pieces;
  const std::size_t last = bytes.size() - kPieceBytes;
  for (std::size_t piece = 0; piece < kPieces; ++piece) {
    pieces.push_back(bytes.substr(last / (kPieces - 1) * piece, kPieceBytes));
  }
  pieces.push_back(bytes.substr(last));
  return pieces;
}

std::string fingerprint_of(const Dataset& set) {
  std::string shape;
  for (const std::int64_t size : set.images.sizes()) shape += (shape.empty() ? "" : "x") + std::to_string(size);
  return shape + " " + digits_of(hashed_pieces(hashed(0, bytes_of(set.labels)), bytes_of(set.images)));
}

std::string fingerprint_of(std::string_view bytes) {
  return digits_of(hashed_pieces(0, bytes));
}

std::string fingerprint_of(const Sources& data) {
  return "train " + data.train->fingerprint() + ", test " + data.test->fingerprint();
}

}  // namespace ddprun::trainer
