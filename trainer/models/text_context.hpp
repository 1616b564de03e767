// The context of a token: the other tokens that it attends to, for gpt.cpp and llama.cpp. It never attends to a later token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ddprun::trainer {

// A key-value cache: keys and values of earlier tokens, so that each further token costs one pass for itself. For one text;
// tokens can only be appended.
class SeenTokens {
 public:
  // Holds at most `capacity` tokens; memory is allocated with the first ones.
  explicit SeenTokens(std::int64_t capacity) : capacity_(capacity) {}

  std::int64_t count() const { return count_; }
  void clear() { count_ = 0; }

  // Appends keys and values of one block of the model, both [n, heads, tokens, width of a head]. Returns all of that block.
  std::pair<at::Tensor, at::Tensor> with(std::size_t block, const at::Tensor& keys, const at::Tensor& values);
  // Call when this number of tokens has passed all blocks.
  void add(std::int64_t tokens) { count_ += tokens; }

 private:
  std::int64_t capacity_;
  std::int64_t count_ = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>> of_block_;
};

struct TextContext {
  at::Tensor mask{};           // bool [n, 1, tokens, tokens]: which token attends to which; undefined: to all before it
  at::Tensor positions{};      // int64 [n, tokens], position in its text; undefined: they continue after the cached tokens
  SeenTokens* seen = nullptr;  // not together with mask and positions; the tokens are added to it

  // Returns the positions of the tokens: [tokens], or [n, tokens].
  at::Tensor positions_of(const at::Tensor& tokens) const;
};

// For several texts in one window, each of which ends with the token `end`. A token attends only to its own text. Positions
// count from the begin of each text, or of the window for the first one.
TextContext several_texts(const at::Tensor& tokens, std::int64_t end);

// Attention of queries [n, heads, tokens, width]. Keys and values may have fewer heads, each shared by the same number of query
// heads.
at::Tensor attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, const TextContext& context,
                     std::size_t block, double dropout);

}  // namespace ddprun::trainer
