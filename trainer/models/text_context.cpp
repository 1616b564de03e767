// Implementation of text_context.hpp.
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

at::Tensor room_for(const at::Tensor& some, std::int64_t tokens) {
  std::vector<std::int64_t> sizes = some.sizes().vec();
  sizes[2] = tokens;
  return at::empty(sizes, some.options());
}

}  // namespace

std::pair<at::Tensor, at::Tensor> SeenTokens::with(std::size_t block, const at::Tensor& keys, const at::Tensor& values) {
  const std::int64_t tokens = keys.size(2);
  if (count_ + tokens > capacity_) throw InternalError("SeenTokens: more tokens than there is room for");
  if (of_block_.size() <= block) of_block_.resize(block + 1);
  auto& [all_keys, all_values] = of_block_[block];
  if (!all_keys.defined()) {
    all_keys = room_for(keys, capacity_);
    all_values = room_for(values, capacity_);
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

TextContext several_texts(const at::Tensor& tokens, std::int64_t end) {
  const at::Tensor ends = tokens.eq(end).to(at::kLong);
  const at::Tensor text = ends.cumsum(1) - ends;  // number of the text in the window; its end token belongs to it
  const at::Tensor places = at::arange(tokens.size(1), tokens.options());
  const at::Tensor before = places.unsqueeze(0) <= places.unsqueeze(1);
  // A text begins after the end token of the one before.
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
  if (!first && queries.size(2) != 1) throw InternalError("attention: tokens are added one by one to those that were seen");
  const auto [all_keys, all_values] = context.seen->with(block, keys, values);
  return of(all_keys, all_values, /*causal=*/first);
}

}  // namespace ddprun::trainer
