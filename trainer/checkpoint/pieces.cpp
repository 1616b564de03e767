// Implementation of pieces.hpp.
#include "trainer/checkpoint/pieces.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/error.hpp"
#include "common/bounded/short_quote.hpp"

namespace ddprun::trainer {
namespace {

std::string elements(std::int64_t begin, std::int64_t end) {
  return "elements " + std::to_string(begin) + " to " + std::to_string(end - 1);
}

// Returns -1 if the number of elements needs more than 63 bits.
std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return -1;
  }
  return count;
}

}  // namespace

void WholeTensors::add(std::vector<NamedTensor> tensors, const TensorPieces& pieces) {
  std::set<std::string_view> names;
  for (const NamedTensor& entry : tensors) names.insert(entry.name);
  for (const auto& [name, piece] : pieces) {
    if (!names.contains(name)) {
      throw UsageError("has no tensor " + short_quote(name) + ", of which its manifest says that it is a piece");
    }
  }
  for (NamedTensor& entry : tensors) {
    if (const auto piece = pieces.find(entry.name); piece != pieces.end()) {
      add_piece(entry, piece->second);
    } else {
      whole_.push_back(std::move(entry));
    }
  }
}

void WholeTensors::add_piece(const NamedTensor& entry, const TensorPiece& piece) {
  const std::string name = short_quote(entry.name);
  const auto [place, is_first] = growing_.try_emplace(entry.name);
  Growing& growing = place->second;
  if (is_first) {
    growing.shape = piece.shape;
    growing.elements = elements_of(piece.shape);
    growing.type = entry.tensor.scalar_type();
  }
  if (growing.shape != piece.shape || growing.type != entry.tensor.scalar_type()) {
    throw UsageError(c10::str("has a piece of ", name, ", which is ", entry.tensor.scalar_type(), " ",
                              at::IntArrayRef(piece.shape), " here and ", growing.type, " ", at::IntArrayRef(growing.shape),
                              " in another file"));
  }
  const std::int64_t begin = piece.begin, count = entry.tensor.numel();
  if (begin < 0 || begin > growing.elements - count) {
    throw UsageError("has " + std::to_string(count) + " elements of " + name + " from element " + std::to_string(begin) +
                     " on, but that tensor has " + std::to_string(growing.elements));
  }
  const std::int64_t end = begin + count;
  const auto after = growing.there.lower_bound(begin);
  const bool into_the_next = after != growing.there.end() && after->first < end;
  const bool into_the_last = after != growing.there.begin() && std::prev(after)->second.end > begin;
  if (into_the_next || into_the_last) throw UsageError("has " + elements(begin, end) + " of " + name + " a second time");
  if (begin == end) return;
  growing.there.emplace(begin, Part{.end = end, .tensor = entry.tensor});
}

std::vector<NamedTensor> WholeTensors::take() && {
  for (auto& [name, growing] : growing_) {
    std::int64_t begin = 0;
    for (const auto& [first, part] : growing.there) {
      if (first != begin) break;
      begin = part.end;
    }
    if (begin != growing.elements) {
      throw UsageError("no file has element " + std::to_string(begin) + " of " + short_quote(name));
    }
  }
  for (auto& [name, growing] : growing_) {
    const at::Tensor whole = at::empty(growing.shape, at::TensorOptions().dtype(growing.type));
    for (auto& [first, part] : growing.there) {
      whole.view(-1).narrow(0, first, part.end - first).copy_(part.tensor.reshape(-1));
      part.tensor.reset();
    }
    whole_.push_back({name, whole});
  }
  return std::move(whole_);
}

}  // namespace ddprun::trainer
