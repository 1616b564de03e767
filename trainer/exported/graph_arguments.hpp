// What a line of a graph gives its operator, made ready by the operator's schema: values, and the places of what a run
// computes. graph.cpp makes them once and asks for their values in each run.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <vector>

#include "trainer/exported/graph_text.hpp"

namespace ddprun::trainer {

// A value, or what a run is to put in its place.
struct Slot {
  enum class Kind { kReady, kNode, kDevice, kTensors, kOptionalTensors, kIntegers };
  Kind kind = Kind::kReady;
  c10::IValue ready{};
  std::size_t node = 0;       // kNode
  bool as_tensor = false;     // kNode: a number becomes a tensor
  bool as_double = false;     // kNode: an integer becomes a double
  std::vector<Slot> items{};  // the lists
};

// What the nodes of a graph have made in a run.
using Values = std::vector<c10::IValue>;

// For all arguments of the schema; those that the line leaves out have their defaults. Throws UsageError naming the line when
// the operator takes something else.
std::vector<Slot> slots_of(const GraphText& text, const GraphNode& node, const c10::FunctionSchema& schema);

c10::IValue value_in(const Slot& slot, const Values& values, c10::Device device);

}  // namespace ddprun::trainer
