#include "trainer/exported/operator_rule.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace ddprun::trainer {
namespace {

using c10::TypeKind;

constexpr std::string_view kNamespace = "aten::";

// The names of text arguments that only select a variant of the computation. Their values cannot refer to anything outside the
// graph, such as a file.
constexpr std::array<std::string_view, 14> kChoices{"approximate",   "assert_msg",    "driver", "equation", "indexing",
                                                    "interpolation", "mode",          "norm",   "padding",  "reduce",
                                                    "ord",           "rounding_mode", "side",   "UPLO"};

// Internal operators that torch.export writes for public functions: softmax, to(), batch norm, weight norm, interpolation,
// attention, size checks. To find them, we exported each function in the list of PyTorch's own tests (op_db).
constexpr std::array<std::string_view, 42> kInternals{"_adaptive_avg_pool2d",
                                                      "_adaptive_avg_pool3d",
                                                      "_assert_async",
                                                      "_assert_scalar",
                                                      "_assert_tensor_metadata",
                                                      "_batch_norm_impl_index",
                                                      "_batch_norm_no_update",
                                                      "_batch_norm_with_update",
                                                      "_cdist_forward",
                                                      "_conj",
                                                      "_euclidean_dist",
                                                      "_fft_c2c",
                                                      "_fft_c2r",
                                                      "_fft_r2c",
                                                      "_fused_rms_norm",
                                                      "_local_scalar_dense",
                                                      "_log_softmax",
                                                      "_lu_with_info",
                                                      "_native_batch_norm_legit",
                                                      "_native_batch_norm_legit_functional",
                                                      "_native_batch_norm_legit_no_training",
                                                      "_native_multi_head_attention",
                                                      "_pack_padded_sequence",
                                                      "_pad_packed_sequence",
                                                      "_safe_softmax",
                                                      "_scaled_dot_product_attention_math",
                                                      "_scaled_dot_product_flash_attention_for_cpu",
                                                      "_shape_as_tensor",
                                                      "_softmax",
                                                      "_thnn_fused_gru_cell",
                                                      "_thnn_fused_lstm_cell",
                                                      "_to_copy",
                                                      "_transformer_encoder_layer_fwd",
                                                      "_unique2",
                                                      "_unsafe_view",
                                                      "_upsample_bicubic2d_aa",
                                                      "_upsample_bilinear2d_aa",
                                                      "_upsample_nearest_exact1d",
                                                      "_upsample_nearest_exact2d",
                                                      "_upsample_nearest_exact3d",
                                                      "_weight_norm",
                                                      "_weight_norm_interface"};

// Operators that replace a tensor's memory or read past its end. The check of argument types alone would allow some of them.
constexpr std::array<std::string_view, 9> kMemory{"from_file", "set_",      "set",           "resize_",       "resize_as_",
                                                  "resize",    "resize_as", "record_stream", "sparse_resize_"};

bool is_one_of(const auto& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

const c10::Type& inner_type(const c10::Type& type) {
  if (type.kind() == TypeKind::OptionalType) return inner_type(*type.expectRef<c10::OptionalType>().getElementType());
  if (type.kind() == TypeKind::ListType) return inner_type(*type.expectRef<c10::ListType>().getElementType());
  return type;
}

// Returns the reason why a graph must not call an operator with this argument; nullopt if the argument is allowed.
std::optional<std::string> reason_to_refuse(const c10::Argument& argument) {
  switch (inner_type(*argument.real_type()).kind()) {
    case TypeKind::StringType:
      if (is_one_of(kChoices, argument.name())) return std::nullopt;
      return "takes the text argument '" + argument.name() + "'";
    case TypeKind::StorageType:
      return "takes raw storage ('" + argument.name() + "')";
    case TypeKind::StreamObjType:
      return "takes a stream ('" + argument.name() + "')";
    default:
      return std::nullopt;
  }
}

// The kernel of weight norm does not check its arguments. It reads one magnitude for each slice of the weights, and divides by
// the number of weights. For a negative dimension LibTorch calls other operators instead, which check their arguments. Throws
// std::domain_error if the arguments are invalid.
void require_weight_norm(const std::vector<c10::IValue>& arguments) {
  const at::Tensor& weights = arguments[0].toTensor();
  const at::Tensor& magnitudes = arguments[1].toTensor();
  const std::int64_t dimension = arguments[2].toInt();
  if (dimension < 0) return;
  const std::int64_t slices = weights.size(dimension);
  if (weights.numel() > 0 && magnitudes.numel() == slices) return;
  if (weights.numel() == 0) throw std::domain_error("expected at least one weight");
  throw std::domain_error("expected " + std::to_string(slices) + " magnitudes, one for each slice of the weights, found " +
                          std::to_string(magnitudes.numel()));
}

}  // namespace

std::optional<std::string> reason_to_refuse(const c10::FunctionSchema& schema) {
  const std::string_view full = schema.name();
  if (!full.starts_with(kNamespace)) return "is not one of PyTorch's own operators (aten::)";
  const std::string_view name = full.substr(kNamespace.size());
  for (const c10::Argument& argument : schema.arguments()) {
    if (auto reason = reason_to_refuse(argument)) return reason;
  }
  if (is_one_of(kMemory, name)) return "replaces the memory of a tensor";
  if (name.starts_with('_') && !is_one_of(kInternals, name)) return "is internal to PyTorch and does not check its arguments";
  if (name.starts_with("sparse_") || name.find("nested") != std::string_view::npos) return "makes tensors that are not dense";
  if (name.find("unsafe") != std::string_view::npos && name.find("index") != std::string_view::npos) {
    return "does not check its indices";
  }
  return std::nullopt;
}

ArgumentCheck argument_check_of(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  return name == "aten::_weight_norm" || name == "aten::_weight_norm_interface" ? require_weight_norm : nullptr;
}

}  // namespace ddprun::trainer
