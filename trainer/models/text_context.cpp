#include "trainer/models/text_context.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros_like.h>

#include <optional>
#include <tuple>
#include <vector>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

at::Tensor empty_like_with(const at::Tensor& some, std::int64_t tokens) {
  std::vector<std::int64_t> sizes = some.sizes().vec();
  sizes[2] = tokens;
  return at::empty(sizes, some.options());
}

}  // namespace

std::pair<at::Tensor, at::Tensor> KvCache::with(std::size_t block, const at::Tensor& keys, const at::Tensor& values) {
  const std::int64_t tokens = keys.size(2);
  if (count_ + tokens > capacity_) throw InternalError("KvCache: more tokens than its capacity");
  if (blocks_.size() <= block) blocks_.resize(block + 1);
  auto& [all_keys, all_values] = blocks_[block];
  if (!all_keys.defined()) {
    all_keys = empty_like_with(keys, capacity_);
    all_values = empty_like_with(values, capacity_);
  }
  all_keys.narrow(2, count_, tokens).copy_(keys);
  all_values.narrow(2, count_, tokens).copy_(values);
  return {all_keys.narrow(2, 0, count_ + tokens), all_values.narrow(2, 0, count_ + tokens)};
}

at::Tensor TextContext::positions_of(const at::Tensor& tokens) const {
  if (positions.defined()) return positions;
  const std::int64_t first = seen != nullptr ? seen->count() : 0;
  return at::arange(first, first + tokens.size(1), tokens.options());
}

TextContext packed_texts(const at::Tensor& tokens, std::int64_t end) {
  const at::Tensor ends = tokens.eq(end).to(at::kLong);
  // Index of the text to which each token belongs. An end token belongs to the text that it ends.
  const at::Tensor text = ends.cumsum(1) - ends;
  const at::Tensor places = at::arange(tokens.size(1), tokens.options());
  const at::Tensor before = places.unsqueeze(0) <= places.unsqueeze(1);
  // At the first token of each text, the position of the token in the window; 0 elsewhere. The first token of a text follows an
  // end token.
  at::Tensor begins = at::zeros_like(tokens);
  const std::int64_t rest = tokens.size(1) - 1;
  begins.narrow(1, 1, rest).copy_((ends * (places + 1)).narrow(1, 0, rest));
  return {.mask = ((text.unsqueeze(1) == text.unsqueeze(2)) & before).unsqueeze(1),
          .positions = places - std::get<0>(at::cummax(begins, 1))};
}

at::Tensor attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, const TextContext& context,
                     std::size_t block, double dropout) {
  const bool shared = keys.size(1) != queries.size(1);
  const auto of = [&](const at::Tensor& all_keys, const at::Tensor& all_values, bool causal) {
    const std::optional<at::Tensor> mask = context.mask.defined() ? std::optional(context.mask) : std::nullopt;
    return at::scaled_dot_product_attention(queries, all_keys, all_values, mask, dropout, causal,
                                            /*scale=*/std::nullopt, /*enable_gqa=*/shared);
  };
  if (context.seen == nullptr) return of(keys, values, /*causal=*/!context.mask.defined());
  const bool first = context.seen->count() == 0;
  if (!first && queries.size(2) != 1)
    throw InternalError("expected one token in each attention call after the first call with a key-value cache, found several");
  const auto [all_keys, all_values] = context.seen->with(block, keys, values);
  return of(all_keys, all_values, /*causal=*/first);
}

}  // namespace ddprun::trainer
