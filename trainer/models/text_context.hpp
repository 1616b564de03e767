// What a token of a text sees beside itself: gpt.cpp and llama.cpp go by it. A token always sees none that comes after it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ddprun::trainer {

// Keys and values of the tokens that a model has seen, so that each further token costs its own pass and no more. Of one text;
// its tokens may only be added at the end.
class SeenTokens {
 public:
  // At most `capacity` tokens; memory is taken when the first are added.
  explicit SeenTokens(std::int64_t capacity) : capacity_(capacity) {}

  std::int64_t count() const { return count_; }
  void clear() { count_ = 0; }

  // Of a block of the model, [n, heads, tokens, width of a head] both: keeps them, and returns all that were kept of it.
  std::pair<at::Tensor, at::Tensor> with(std::size_t block, const at::Tensor& keys, const at::Tensor& values);
  // So many tokens went through all blocks.
  void add(std::int64_t tokens) { count_ += tokens; }

 private:
  std::int64_t capacity_;
  std::int64_t count_ = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>> of_block_;
};

struct TextContext {
  at::Tensor mask{};           // bool [n, 1, tokens, tokens]: who is seen by whom; undefined: all that come before
  at::Tensor positions{};      // int64 [n, tokens], each in its text; undefined: they count on from what was seen
  SeenTokens* seen = nullptr;  // not together with the others; the tokens are added to it

  // Positions of so many tokens: [tokens], or [n, tokens].
  at::Tensor positions_of(const at::Tensor& tokens) const;
};

// Several texts in one window, each ends with the token `end`: a token sees its own text only, and positions count from each
// text's begin, or from the window's.
TextContext several_texts(const at::Tensor& tokens, std::int64_t end);

// Attention of queries [n, heads, tokens, width]; keys and values may have fewer heads, each for as many of the queries'.
at::Tensor attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, const TextContext& context,
                     std::size_t block, double dropout);

}  // namespace ddprun::trainer
