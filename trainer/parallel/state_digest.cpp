#include "trainer/parallel/state_digest.hpp"

#include <xxhash.h>

#include <memory>
#include <new>

namespace ddprun::trainer {
namespace {

std::vector<std::int64_t> halves_of(const XXH128_hash_t& digest) {
  return {static_cast<std::int64_t>(digest.high64), static_cast<std::int64_t>(digest.low64)};
}

}  // namespace

std::vector<std::int64_t> state_digest(const std::vector<at::Tensor>& tensors) {
  const std::unique_ptr<XXH3_state_t, decltype(&::XXH3_freeState)> hash(::XXH3_createState(), &::XXH3_freeState);
  if (!hash) throw std::bad_alloc();
  ::XXH3_128bits_reset(hash.get());
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor whole = tensor.cpu().contiguous();
    ::XXH3_128bits_update(hash.get(), whole.const_data_ptr(), whole.nbytes());
  }
  return halves_of(::XXH3_128bits_digest(hash.get()));
}

std::vector<std::int64_t> text_digest(std::string_view text) {
  return halves_of(::XXH3_128bits(text.data(), text.size()));
}

}  // namespace ddprun::trainer
