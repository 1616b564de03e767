#include "trainer/loop/bad_data.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>

#include <array>
#include <cstddef>
#include <exception>
#include <optional>

#include "common/base/error.hpp"
#include "trainer/finite/not_finite.hpp"

namespace ddprun::trainer {

std::string not_finite_in(const RankBatch& share, const Source& source) {
  for (const std::int64_t& sample : share.samples) {
    const Batch batch = source.make(std::span(&sample, 1), {});
    for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
      const std::optional<NotFinite> found = first_not_finite(batch.tensors[i].select(0, 0));
      if (!found) continue;
      return not_finite_text(found->value) + place_text(found->index) + " of " + source.place_of(sample, i);
    }
  }
  return "";
}

namespace {

// Returns the range of the integers in this sample; for example: "'label' of sample 17 in train.safetensors is 3".
std::string integers_of(std::int64_t sample, const Source& source) {
  const Batch batch = source.make(std::span(&sample, 1), {});
  std::string text;
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    const at::Tensor& tensor = batch.tensors[i];
    if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) || tensor.numel() == 0) continue;
    const auto least = tensor.min().item<std::int64_t>(), largest = tensor.max().item<std::int64_t>();
    text += (text.empty() ? "" : ", ") + source.place_of(sample, i) + " is " + std::to_string(least) +
            (least == largest ? "" : " to " + std::to_string(largest));
  }
  return text.empty() ? source.place_of(sample, 0) : text;
}

bool is_out_of_range(std::int64_t sample, const Source& source, const std::function<void(const Batch&)>& use) {
  const at::NoGradGuard no_gradients;
  const std::array<std::int64_t, 2> twice{sample, sample};
  try {
    use(source.make(twice, {}));
  } catch (const c10::IndexError&) {
    return true;
  } catch (const std::exception&) {
    return false;  // any other error, such as one about a small batch, does not prove that the sample is bad
  }
  return false;
}

}  // namespace

void refuse_index(const c10::IndexError& error, std::span<const std::int64_t> samples, const Source& source,
                  const std::function<void(const Batch&)>& use) {
  std::string reason = error.what_without_backtrace();
  while (reason.ends_with('.')) reason.pop_back();
  for (const std::int64_t sample : samples) {
    if (is_out_of_range(sample, source, use)) {
      throw UsageError("the model cannot use a sample: " + reason + "; " + integers_of(sample, source) +
                       ". Correct the data, or increase the number of classes or tokens of the model");
    }
  }
  throw UsageError("the model cannot use a batch: " + reason +
                   "; no single sample in the batch causes this error. Check the labels and tokens in the data");
}

}  // namespace ddprun::trainer
