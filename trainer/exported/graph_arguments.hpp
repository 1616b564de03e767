// The arguments of a graph's line, prepared by the schema of its operator: values, and references to results of other nodes.
// graph.cpp prepares them once and evaluates them in each run.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <vector>

#include "trainer/exported/graph_text.hpp"

namespace ddprun::trainer {

// A value, or a description of the value that each run must insert.
struct Slot {
  enum class Kind { kReady, kNode, kDevice, kTensors, kOptionalTensors, kIntegers };
  Kind kind = Kind::kReady;
  c10::IValue ready{};
  std::size_t node = 0;       // kNode
  bool as_tensor = false;     // kNode: a number becomes a tensor
  bool as_double = false;     // kNode: an integer becomes a double
  std::vector<Slot> items{};  // the lists
};

// The results of a graph's nodes in one run.
using Values = std::vector<c10::IValue>;

// Prepares all arguments of the schema; those that the line leaves out get their defaults. Throws UsageError naming the line if
// the operator takes other arguments.
std::vector<Slot> slots_of(const GraphText& text, const GraphNode& node, const c10::FunctionSchema& schema);

c10::IValue value_in(const Slot& slot, const Values& values, c10::Device device);

}  // namespace ddprun::trainer
