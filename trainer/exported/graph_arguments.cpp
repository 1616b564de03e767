#include "trainer/exported/graph_arguments.hpp"

#include <ATen/core/jit_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorImpl.h>
#include <torch/version.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/checkpoint/dtypes.hpp"

namespace ddprun::trainer {
namespace {

using c10::IValue;
using c10::TypeKind;
using Given = GraphArgument::Kind;

constexpr std::array<std::pair<std::string_view, at::MemoryFormat>, 4> kFormats{
    {{"contiguous", at::MemoryFormat::Contiguous},
     {"preserve", at::MemoryFormat::Preserve},
     {"channels_last", at::MemoryFormat::ChannelsLast},
     {"channels_last_3d", at::MemoryFormat::ChannelsLast3d}}};

// If an operator takes a tensor and gets a number, Python passes the number as a "wrapped number" tensor. Such a tensor does
// not affect the type of the result.
at::Tensor wrapped_number(const c10::Scalar& number) {
  at::Tensor tensor = at::scalar_tensor(number, number.isBoolean()         ? at::kBool
                                                : number.isIntegral(false) ? at::kLong
                                                                           : at::kDouble);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

// Converts the arguments of one line of the graph to slots.
class Preparation {
 public:
  Preparation(const GraphText& text, const GraphNode& node) : text_(text), node_(node) {}

  std::vector<Slot> of(const c10::FunctionSchema& schema) {
    const auto& takes = schema.arguments();
    if (node_.arguments.size() > takes.size()) {
      fail("passes " + std::to_string(node_.arguments.size()) + " arguments to " + node_.name + ", which takes at most " +
           std::to_string(takes.size()));
    }
    std::vector<Slot> slots;
    for (std::size_t i = 0; i < takes.size(); ++i) {
      argument_ = &takes[i];
      // The line may omit arguments that a newer LibTorch has added; these have defaults.
      const bool left_out = i >= node_.arguments.size() || node_.arguments[i].kind == Given::kDefault;
      slots.push_back(left_out ? default_slot() : slot(node_.arguments[i], *argument_->type(), argument_->N()));
    }
    return slots;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw UsageError(text_.file + ":" + std::to_string(node_.line) + ": " + problem);
  }
  [[noreturn]] void fail_type() const {
    fail("the graph passes a value of another type for argument '" + argument_->name() + "' of " + node_.name + "; expected " +
         argument_->type()->str() + ". Export the model with PyTorch " TORCH_VERSION ", the version of this program");
  }

  Slot default_slot() const {
    if (!argument_->default_value()) fail("argument '" + argument_->name() + "' of " + node_.name + " is missing");
    return {.ready = *argument_->default_value()};
  }

  Slot slot(const GraphArgument& given, const c10::Type& type, std::optional<int> count) const {
    if (type.kind() == TypeKind::OptionalType) {
      if (given.kind == Given::kNone) return {};
      return slot(given, *type.expectRef<c10::OptionalType>().getElementType(), count);
    }
    if (given.kind == Given::kNode) {
      return {.kind = Slot::Kind::kNode,
              .node = static_cast<std::size_t>(given.integer),
              .as_tensor = type.kind() == TypeKind::TensorType,
              .as_double = type.kind() == TypeKind::FloatType};
    }
    if (type.kind() == TypeKind::ListType) return list(given, *type.expectRef<c10::ListType>().getElementType(), count);
    if (given.kind == Given::kDevice && type.kind() == TypeKind::DeviceObjType) return {.kind = Slot::Kind::kDevice};
    const std::optional<IValue> value = value_of(given, type.kind());
    if (!value) fail_type();
    return {.ready = *value};
  }

  std::optional<IValue> value_of(const GraphArgument& given, TypeKind type) const {
    switch (type) {
      case TypeKind::TensorType:
        if (const auto number = scalar_of(given)) return wrapped_number(*number);
        return std::nullopt;
      case TypeKind::NumberType:
        if (const auto number = scalar_of(given)) return IValue(*number);
        return std::nullopt;
      case TypeKind::IntType:
        if (given.kind == Given::kInteger || given.kind == Given::kBool) return IValue(given.integer);
        return enumerator_of(given);
      case TypeKind::FloatType:
        if (given.kind == Given::kNumber) return IValue(given.number);
        if (given.kind == Given::kInteger) return IValue(static_cast<double>(given.integer));
        return std::nullopt;
      case TypeKind::BoolType:
        if (given.kind == Given::kBool) return IValue(given.integer != 0);
        return std::nullopt;
      case TypeKind::StringType:
        if (given.kind == Given::kText) return IValue(given.text);
        return std::nullopt;
      default:
        return std::nullopt;
    }
  }

  static std::optional<c10::Scalar> scalar_of(const GraphArgument& given) {
    if (given.kind == Given::kInteger) return c10::Scalar(given.integer);
    if (given.kind == Given::kNumber) return c10::Scalar(given.number);
    if (given.kind == Given::kBool) return c10::Scalar(given.integer != 0);
    return std::nullopt;
  }

  // Converts the name of a dtype, memory format or layout to PyTorch's integer code. A graph file contains names, because the
  // codes may differ between versions of PyTorch.
  std::optional<IValue> enumerator_of(const GraphArgument& given) const {
    if (given.kind == Given::kDtype) {
      if (const Dtype* const dtype = find_dtype(&Dtype::torch, given.text)) {
        return IValue(static_cast<std::int64_t>(dtype->type));
      }
      fail("has the unknown dtype '" + given.text + "'");
    }
    if (given.kind == Given::kFormat) {
      for (const auto& [name, format] : kFormats) {
        if (name == given.text) return IValue(static_cast<std::int64_t>(format));
      }
      fail("has the unknown memory format '" + given.text + "'");
    }
    if (given.kind == Given::kLayout) {
      if (given.text == "strided") return IValue(static_cast<std::int64_t>(at::kStrided));
      fail("has the unknown layout '" + given.text + "'");
    }
    return std::nullopt;
  }

  Slot list(const GraphArgument& given, const c10::Type& element, std::optional<int> count) const {
    std::vector<GraphArgument> items = given.items;
    if (given.kind != Given::kList) {
      if (given.kind != Given::kInteger && given.kind != Given::kNumber) fail_type();
      // One number may represent all elements of an int[2]. The number is then repeated.
      items.assign(static_cast<std::size_t>(count.value_or(1)), given);
    }
    std::vector<Slot> slots;
    bool ready = true;
    for (const GraphArgument& item : items) {
      slots.push_back(slot(item, element, std::nullopt));
      ready = ready && slots.back().kind == Slot::Kind::kReady;
    }
    switch (element.kind()) {
      case TypeKind::TensorType:
        return {.kind = Slot::Kind::kTensors, .items = std::move(slots)};
      case TypeKind::OptionalType:
        if (element.expectRef<c10::OptionalType>().getElementType()->kind() != TypeKind::TensorType) fail_type();
        return {.kind = Slot::Kind::kOptionalTensors, .items = std::move(slots)};
      case TypeKind::IntType:
        if (!ready) return {.kind = Slot::Kind::kIntegers, .items = std::move(slots)};
        return {.ready = list_of<std::int64_t>(slots, [](const IValue& value) { return value.toInt(); })};
      case TypeKind::FloatType:
        if (!ready) fail_type();
        return {.ready = list_of<double>(slots, [](const IValue& value) { return value.toDouble(); })};
      case TypeKind::BoolType:
        if (!ready) fail_type();
        return {.ready = list_of<bool>(slots, [](const IValue& value) { return value.toBool(); })};
      default:
        fail_type();
    }
  }

  template <class Element, class Convert>
  static IValue list_of(const std::vector<Slot>& slots, Convert convert) {
    c10::List<Element> made;
    for (const Slot& slot : slots) made.push_back(convert(slot.ready));
    return made;
  }

  const GraphText& text_;
  const GraphNode& node_;
  const c10::Argument* argument_ = nullptr;
};

at::Tensor tensor_in(const Slot& slot, const Values& values, c10::Device device) {
  return value_in(slot, values, device).toTensor();
}

}  // namespace

std::vector<Slot> slots_of(const GraphText& text, const GraphNode& node, const c10::FunctionSchema& schema) {
  return Preparation(text, node).of(schema);
}

IValue value_in(const Slot& slot, const Values& values, c10::Device device) {
  switch (slot.kind) {
    case Slot::Kind::kReady:
      return slot.ready;
    case Slot::Kind::kDevice:
      return device;
    case Slot::Kind::kNode: {
      const IValue& value = values[slot.node];
      if (slot.as_tensor && value.isScalar()) return wrapped_number(value.toScalar());
      if (slot.as_double && value.isInt()) return static_cast<double>(value.toInt());
      return value;
    }
    case Slot::Kind::kTensors: {
      c10::List<at::Tensor> list;
      for (const Slot& item : slot.items) list.push_back(tensor_in(item, values, device));
      return list;
    }
    case Slot::Kind::kOptionalTensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (const Slot& item : slot.items) list.push_back(value_in(item, values, device).toOptional<at::Tensor>());
      return list;
    }
    case Slot::Kind::kIntegers: {
      c10::List<std::int64_t> list;
      for (const Slot& item : slot.items) list.push_back(value_in(item, values, device).toInt());
      return list;
    }
  }
  throw InternalError("an argument of a graph has an unknown kind");
}

}  // namespace ddprun::trainer
