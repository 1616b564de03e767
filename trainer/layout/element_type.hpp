// Element types of the tensors in a training state: exactly the types that a safetensors file can have
// (trainer/checkpoint/safetensors.cpp). at::ScalarType is not used here, so that a layout can be computed without LibTorch's
// headers. The code is pure: no I/O, no clock.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ddprun::trainer {

enum class ElementType : std::uint8_t { kF64, kF32, kF16, kBf16, kI64, kI32, kI16, kI8, kU8, kBool };

struct ElementTypeFacts {
  ElementType type = ElementType::kF32;
  std::string_view name{};  // dtype in a safetensors header
  std::int64_t bytes = 0;   // size of one element
};

inline constexpr std::array<ElementTypeFacts, 10> kElementTypes{{{ElementType::kF64, "F64", 8},
                                                                 {ElementType::kF32, "F32", 4},
                                                                 {ElementType::kF16, "F16", 2},
                                                                 {ElementType::kBf16, "BF16", 2},
                                                                 {ElementType::kI64, "I64", 8},
                                                                 {ElementType::kI32, "I32", 4},
                                                                 {ElementType::kI16, "I16", 2},
                                                                 {ElementType::kI8, "I8", 1},
                                                                 {ElementType::kU8, "U8", 1},
                                                                 {ElementType::kBool, "BOOL", 1}}};

constexpr std::int64_t bytes_of(ElementType type) {
  return kElementTypes[static_cast<std::size_t>(type)].bytes;
}

constexpr std::string_view name_of(ElementType type) {
  return kElementTypes[static_cast<std::size_t>(type)].name;
}

// Returns the element type with this name in safetensors files, or nullopt if the name is unknown.
constexpr std::optional<ElementType> element_type_of(std::string_view name) {
  for (const ElementTypeFacts& facts : kElementTypes) {
    if (facts.name == name) return facts.type;
  }
  return std::nullopt;
}

}  // namespace ddprun::trainer
