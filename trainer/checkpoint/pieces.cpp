#include "trainer/checkpoint/pieces.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

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

// Returns the number of elements of a tensor with this shape, or -1 if that number needs more than 63 bits.
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
      throw UsageError("has no tensor " + short_quote(name) +
                       ", although the manifest lists a piece of that tensor in this file");
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
  const auto [place, is_first] = partial_.try_emplace(entry.name);
  PartialTensor& partial = place->second;
  if (is_first) {
    partial.shape = piece.shape;
    partial.elements = elements_of(piece.shape);
    partial.type = entry.tensor.scalar_type();
  }
  if (partial.shape != piece.shape || partial.type != entry.tensor.scalar_type()) {
    throw UsageError(c10::str("has a piece of tensor ", name, " with type and shape ", entry.tensor.scalar_type(), " ",
                              at::IntArrayRef(piece.shape), ", but another file has ", partial.type, " ",
                              at::IntArrayRef(partial.shape)));
  }
  const std::int64_t begin = piece.begin, count = entry.tensor.numel();
  if (begin < 0 || begin > partial.elements - count) {
    throw UsageError("has " + std::to_string(count) + " elements of tensor " + name + ", starting with element " +
                     std::to_string(begin) + ", but that tensor has only " + std::to_string(partial.elements) + " elements");
  }
  const std::int64_t end = begin + count;
  const auto after = partial.there.lower_bound(begin);
  const bool overlaps_next = after != partial.there.end() && after->first < end;
  const bool overlaps_previous = after != partial.there.begin() && std::prev(after)->second.end > begin;
  if (overlaps_next || overlaps_previous) {
    throw UsageError("has " + elements(begin, end) + " of tensor " + name +
                     ", but another file also contains some of these elements");
  }
  if (begin == end) return;
  partial.there.emplace(begin, Part{.end = end, .tensor = entry.tensor});
}

std::vector<NamedTensor> WholeTensors::take() && {
  for (auto& [name, partial] : partial_) {
    std::int64_t begin = 0;
    for (const auto& [first, part] : partial.there) {
      if (first != begin) break;
      begin = part.end;
    }
    if (begin != partial.elements) {
      throw UsageError("no file contains element " + std::to_string(begin) + " of tensor " + short_quote(name));
    }
  }
  for (auto& [name, partial] : partial_) {
    const at::Tensor whole = at::empty(partial.shape, at::TensorOptions().dtype(partial.type));
    for (auto& [first, part] : partial.there) {
      whole.view(-1).narrow(0, first, part.end - first).copy_(part.tensor.reshape(-1));
      part.tensor.reset();
    }
    whole_.push_back({name, whole});
  }
  return std::move(whole_);
}

}  // namespace ddprun::trainer
