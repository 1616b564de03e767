// The element types of stored tensors, with their names in safetensors files, in PyTorch, and in NumPy on this machine.
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace ddprun::trainer {

// An element type and its name in each format. The name is empty if the format lacks the type, or if ddptrain does not read the
// type from files of that format.
struct Dtype {
  at::ScalarType type = at::kFloat;
  std::string_view safetensors{};
  std::string_view torch{};
  std::string_view numpy{};
};

// Messages list the safetensors names in this order.
inline constexpr std::array<Dtype, 15> kDtypes{{{at::kDouble, "F64", "float64", "<f8"},
                                                {at::kFloat, "F32", "float32", "<f4"},
                                                {at::kHalf, "F16", "float16", "<f2"},
                                                {at::kBFloat16, "BF16", "bfloat16", ""},
                                                {at::kLong, "I64", "int64", "<i8"},
                                                {at::kInt, "I32", "int32", "<i4"},
                                                {at::kShort, "I16", "int16", "<i2"},
                                                {at::kChar, "I8", "int8", "|i1"},
                                                {at::kByte, "U8", "uint8", "|u1"},
                                                {at::kBool, "BOOL", "bool", "|b1"},
                                                {at::kUInt16, "", "", "<u2"},
                                                {at::kUInt32, "", "", "<u4"},
                                                {at::kUInt64, "", "", "<u8"},
                                                {at::kComplexFloat, "", "complex64", ""},
                                                {at::kComplexDouble, "", "complex128", ""}}};

// Returns the type with the name `name` in one format, or null. A member pointer such as &Dtype::torch selects the format.
inline const Dtype* find_dtype(std::string_view Dtype::*format, std::string_view name) {
  const auto found = std::ranges::find(kDtypes, name, format);
  return name.empty() || found == kDtypes.end() ? nullptr : &*found;
}

// Returns the entry of kDtypes for a PyTorch type, or null.
inline const Dtype* find_dtype(at::ScalarType type) {
  const auto found = std::ranges::find(kDtypes, type, &Dtype::type);
  return found == kDtypes.end() ? nullptr : &*found;
}

}  // namespace ddprun::trainer
