// Implementation of pieces.hpp.
#include "trainer/checkpoint/pieces.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

std::string elements(std::int64_t begin, std::int64_t end) {
  return "elements " + std::to_string(begin) + " to " + std::to_string(end - 1);
}

}  // namespace

void WholeTensors::add(std::vector<NamedTensor> tensors, const TensorPieces& pieces) {
  for (const auto& [name, piece] : pieces) {
    if (std::ranges::find(tensors, name, &NamedTensor::name) == tensors.end()) {
      throw UsageError("has no tensor " + name + ", of which its manifest says that it is a piece");
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
  Growing& growing = growing_[entry.name];
  at::Tensor& whole = growing.whole;
  if (!whole.defined()) whole = at::empty(piece.shape, entry.tensor.options());
  if (whole.sizes() != at::IntArrayRef(piece.shape) || whole.scalar_type() != entry.tensor.scalar_type()) {
    throw UsageError(c10::str("has a piece of ", entry.name, ", which is ", entry.tensor.scalar_type(), " ",
                              at::IntArrayRef(piece.shape), " here and ", whole.scalar_type(), " ", whole.sizes(),
                              " in another file"));
  }
  const std::int64_t begin = piece.begin, end = begin + entry.tensor.numel();
  if (begin > whole.numel() || end > whole.numel()) {
    throw UsageError("has " + elements(begin, end) + " of " + entry.name + ", which has " + std::to_string(whole.numel()));
  }
  const auto after = growing.there.lower_bound(begin);
  const bool into_the_next = after != growing.there.end() && after->first < end;
  const bool into_the_last = after != growing.there.begin() && std::prev(after)->second > begin;
  if (into_the_next || into_the_last) throw UsageError("has " + elements(begin, end) + " of " + entry.name + " a second time");
  if (begin == end) return;
  growing.there.emplace(begin, end);
  whole.view(-1).narrow(0, begin, end - begin).copy_(entry.tensor.reshape(-1));
}

std::vector<NamedTensor> WholeTensors::take() && {
  for (auto& [name, growing] : growing_) {
    std::int64_t begin = 0;
    for (const auto& [first, last] : growing.there) {
      if (first != begin) break;
      begin = last;
    }
    if (begin != growing.whole.numel()) throw UsageError("no file has element " + std::to_string(begin) + " of " + name);
    whole_.push_back({name, growing.whole});
  }
  return std::move(whole_);
}

}  // namespace ddprun::trainer
