// Implementation of generation.hpp. When the text is longer than the model's number of positions, each new token shifts the
// positions of all other tokens in the window. The cached keys and values depend on the positions, so in this case they cannot
// be reused.
#include "trainer/saved/generation.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "common/base/error.hpp"
#include "trainer/models/precision.hpp"

namespace ddprun::trainer {

std::int64_t choose_token(const at::Tensor& logits, const Sampling& sampling, at::Generator& generator) {
  if (sampling.temperature == 0) return logits.argmax(-1).item<std::int64_t>();
  at::Tensor scaled = logits / sampling.temperature;
  // logits / temperature overflows only if the temperature is tiny. The most likely token then has probability 1.
  if (!at::isfinite(scaled).all().item<bool>()) return logits.argmax(-1).item<std::int64_t>();
  if (sampling.top_k > 0 && sampling.top_k < scaled.size(-1)) {
    const at::Tensor least = std::get<0>(at::topk(scaled, sampling.top_k)).narrow(-1, sampling.top_k - 1, 1);
    scaled = scaled.masked_fill(scaled < least, -std::numeric_limits<double>::infinity());
  }
  return at::multinomial(at::softmax(scaled, -1), 1, /*replacement=*/false, generator).item<std::int64_t>();
}

Generation::Generation(Gpt& model, std::int64_t positions, c10::Device device, TrainConfig::Precision precision,
                       Sampling sampling, std::optional<std::int64_t> end)
    : model_(model),
      positions_(positions),
      device_(device),
      precision_(precision),
      sampling_(sampling),
      end_(end),
      generator_(at::detail::createCPUGenerator(sampling.seed)),
      cache_(positions) {}

std::span<const std::int64_t> Generation::window_of(const std::vector<std::int64_t>& tokens) const {
  const auto last = std::prev(tokens.end());
  auto begin = tokens.begin();
  if (end_) begin = std::find(std::reverse_iterator(last), tokens.rend(), *end_).base();
  return {std::max(begin, tokens.end() - std::min<std::ptrdiff_t>(positions_, std::ssize(tokens))), tokens.end()};
}

at::Tensor Generation::logits_after(std::span<const std::int64_t> window, bool whole) {
  if (whole) cache_.clear();
  const std::span<const std::int64_t> unseen = window.subspan(static_cast<std::size_t>(cache_.count()));
  const at::Tensor tokens = at::empty({1, std::ssize(unseen)}, at::kLong);
  std::ranges::copy(unseen, tokens.mutable_data_ptr<std::int64_t>());
  const Autocast precision(precision_, device_.type());
  const at::Tensor last = model_.hidden(tokens.to(device_), {.seen = &cache_}).narrow(1, std::ssize(unseen) - 1, 1);
  return model_.logits(last).squeeze(1).to(at::kFloat).cpu();
}

std::int64_t Generation::next(const std::vector<std::int64_t>& tokens) {
  const at::NoGradGuard no_gradients;
  const std::span<const std::int64_t> window = window_of(tokens);
  const bool one_more = window.size() == window_.size() + 1 && std::ranges::equal(window.first(window_.size()), window_);
  const at::Tensor logits = logits_after(window, /*whole=*/!one_more);
  window_.assign(window.begin(), window.end());
  if (!at::isfinite(logits).all().item<bool>()) {
    throw DivergedError("the model's logits are NaN or infinite: these weights cannot be used to generate text");
  }
  return choose_token(logits, sampling_, generator_);
}

}  // namespace ddprun::trainer
