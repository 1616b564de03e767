// The arguments of an operator call in a graph: values, and references to the results of other nodes. graph.cpp prepares them
// once, according to the operator's schema, and evaluates them in each run.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <vector>

#include "trainer/exported/graph_text.hpp"

namespace ddprun::trainer {

// One argument: either a value (kReady), or a description of the value that each run must insert.
struct Slot {
  enum class Kind { kReady, kNode, kDevice, kTensors, kOptionalTensors, kIntegers };
  Kind kind = Kind::kReady;
  c10::IValue ready{};
  std::size_t node = 0;       // for kNode: index of the node
  bool as_tensor = false;     // for kNode: true if a number must be converted to a tensor
  bool as_double = false;     // for kNode: true if an integer must be converted to a double
  std::vector<Slot> items{};  // elements of kTensors, kOptionalTensors and kIntegers
};

// The results of all nodes of a graph in one run.
using Values = std::vector<c10::IValue>;

// Prepares all arguments of the schema; arguments that the line omits get their defaults. Throws UsageError with the line
// number if the operator does not accept the arguments.
std::vector<Slot> slots_of(const GraphText& text, const GraphNode& node, const c10::FunctionSchema& schema);

c10::IValue value_in(const Slot& slot, const Values& values, c10::Device device);

}  // namespace ddprun::trainer
