// Implementation of flop_count.hpp: an observer of PyTorch's dispatcher. The observer is called for every operator, including
// those that other operators call. So kCounted lists only one operator of each call chain; otherwise products would be counted
// twice.
#include "trainer/cost/flop_count.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <atomic>
#include <memory>
#include <string_view>

namespace ddprun::trainer {
namespace {

std::atomic<std::int64_t> flops_so_far{0};

using Inputs = c10::ArrayRef<const c10::IValue>;

const at::Tensor& tensor_at(Inputs inputs, std::size_t place) {
  return inputs.at(place).toTensor();
}

// The shapes of the arguments are [..., m, k] and [..., k, n].
std::int64_t of_product(const at::Tensor& first, const at::Tensor& second) {
  return 2 * first.numel() * second.size(-1);
}

// `output` is the number of output elements. Each output element costs one multiply-add per weight of a filter.
std::int64_t of_convolution(std::int64_t output, const at::Tensor& weight) {
  return weight.size(0) == 0 ? 0 : 2 * output * (weight.numel() / weight.size(0));
}

// `inputs` are the arguments of aten::convolution: input, weight, bias, stride, padding, dilation, transposed, ...
std::int64_t of_convolution(Inputs inputs) {
  const at::Tensor& input = tensor_at(inputs, 0);
  const at::Tensor& weight = tensor_at(inputs, 1);
  if (inputs.at(6).toBool()) return of_convolution(input.numel(), weight);
  const auto stride = inputs.at(3).toDimVector();
  const auto padding = inputs.at(4).toDimVector();
  const auto dilation = inputs.at(5).toDimVector();
  std::int64_t output = input.size(0) * weight.size(0);
  for (std::int64_t i = 2; i < input.dim(); ++i) {
    const auto of = [place = static_cast<std::size_t>(i - 2)](const auto& list) { return list[list.size() == 1 ? 0 : place]; };
    output *= (input.size(i) + 2 * of(padding) - of(dilation) * (weight.size(i) - 1) - 1) / of(stride) + 1;
  }
  return of_convolution(output, weight);
}

// `inputs` are the arguments of aten::convolution_backward: gradient, input, weight, bias sizes, stride, padding, dilation,
// transposed, output padding, groups, mask of the requested gradients.
std::int64_t of_convolution_backward(Inputs inputs) {
  const at::Tensor& weight = tensor_at(inputs, 2);
  const bool transposed = inputs.at(7).toBool();
  const std::int64_t once = of_convolution(tensor_at(inputs, transposed ? 1 : 0).numel(), weight);
  const auto wanted = inputs.at(10).toBoolList();
  return (wanted.get(0) ? once : 0) + (wanted.get(1) ? once : 0);
}

// Counts two products: query times key, and attention weights times value. The tensors are [n, heads, positions, width].
std::int64_t of_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return of_product(query, key.transpose(-2, -1)) + 2 * query.numel() / query.size(-1) * key.size(-2) * value.size(-1);
}

// Counts five products: the recomputed scores, and the gradients of value, attention weights, query and key.
std::int64_t of_attention_backward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  const std::int64_t scores = of_product(query, key.transpose(-2, -1));
  return 2 * of_attention(query, key, value) + scores;
}

struct Counted {
  std::string_view name;
  std::int64_t (*flops)(Inputs inputs);
};

template <std::size_t first>
std::int64_t product_of(Inputs inputs) {
  return of_product(tensor_at(inputs, first), tensor_at(inputs, first + 1));
}
std::int64_t attention_of(Inputs inputs) {
  return of_attention(tensor_at(inputs, 0), tensor_at(inputs, 1), tensor_at(inputs, 2));
}
std::int64_t attention_backward_of(Inputs inputs) {
  return of_attention_backward(tensor_at(inputs, 1), tensor_at(inputs, 2), tensor_at(inputs, 3));
}

constexpr std::array kCounted{
    Counted{"aten::mm", product_of<0>},
    Counted{"aten::bmm", product_of<0>},
    Counted{"aten::addmm", product_of<1>},
    Counted{"aten::baddbmm", product_of<1>},
    Counted{"aten::convolution", of_convolution},
    Counted{"aten::convolution_backward", of_convolution_backward},
    Counted{"aten::_scaled_dot_product_flash_attention", attention_of},
    Counted{"aten::_scaled_dot_product_efficient_attention", attention_of},
    Counted{"aten::_scaled_dot_product_cudnn_attention", attention_of},
    Counted{"aten::_scaled_dot_product_flash_attention_for_cpu", attention_of},
    Counted{"aten::_scaled_dot_product_flash_attention_backward", attention_backward_of},
    Counted{"aten::_scaled_dot_product_efficient_attention_backward", attention_backward_of},
    Counted{"aten::_scaled_dot_product_cudnn_attention_backward", attention_backward_of},
    Counted{"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward_of},
};

std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  for (const Counted& counted : kCounted) {
    if (name != counted.name) continue;
    flops_so_far += counted.flops(function.inputs());
    break;
  }
  return nullptr;
}

}  // namespace

// The callback is registered for this thread only. Autograd's threads inherit the callbacks of the thread that calls
// backward().
FlopCount::FlopCount()
    : handle_(
          at::addThreadLocalCallback(at::RecordFunctionCallback(count).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {
  flops_so_far = 0;
}

FlopCount::~FlopCount() {
  at::removeCallback(handle_);
}

std::int64_t FlopCount::counted() const {
  return flops_so_far;
}

}  // namespace ddprun::trainer
