// Attention of the language models gpt.cpp and llama.cpp, and the context of a token: the tokens to which it attends. A token
// never attends to later tokens. A mask can limit a token's context to one of several texts in a window. With a key-value
// cache, the context includes the tokens of earlier calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ddprun::trainer {

// A key-value cache: the keys and values of earlier tokens. With the cache, a model that generates text runs each new token
// through its layers only once. The cache stores a single text, to which tokens are appended.
class KvCache {
 public:
  // The cache stores at most `capacity` tokens. The memory is allocated when the first tokens are added.
  explicit KvCache(std::int64_t capacity) : capacity_(capacity) {}

  std::int64_t count() const { return count_; }
  void clear() { count_ = 0; }

  // Stores the keys and values of new tokens for one block of the model. Both have the shape [n, heads, tokens, width of a
  // head]. Returns the keys and values of all tokens for this block, including the new ones.
  std::pair<at::Tensor, at::Tensor> with(std::size_t block, const at::Tensor& keys, const at::Tensor& values);
  // Increases count() by the number of new tokens. Call this after with() was called for all blocks.
  void add(std::int64_t tokens) { count_ += tokens; }

 private:
  std::int64_t capacity_;
  std::int64_t count_ = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>> blocks_;
};

struct TextContext {
  // Bool [n, 1, tokens, tokens]: true where one token attends to another. If undefined, each token attends to itself and all
  // earlier tokens.
  at::Tensor mask{};
  // Int64 [n, tokens]: position of each token in its text. If undefined, positions continue after the tokens in the cache.
  at::Tensor positions{};
  // Cache to which the model appends the new tokens. Must be null if `mask` or `positions` is set.
  KvCache* seen = nullptr;

  // Returns the positions of the tokens: int64 [tokens], or [n, tokens] if `positions` is set.
  at::Tensor positions_of(const at::Tensor& tokens) const;
};

// Returns the context for windows that contain several texts, each of which ends with the token `end`. A token attends only to
// tokens of the same text. Positions start at 0 in each text. They also start at 0 for a text that started before the window.
TextContext packed_texts(const at::Tensor& tokens, std::int64_t end);

// Computes attention in the block with index `block`. All tensors are [n, heads, tokens, width of a head]. Keys and values may
// have fewer heads than the queries. Each key-value head is then used by the same number of query heads.
at::Tensor attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, const TextContext& context,
                     std::size_t block, double dropout);

}  // namespace ddprun::trainer
