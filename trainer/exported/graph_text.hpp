// The text of a graph. python/ddprun/graph.py writes it and describes the format: one line per node, in the order of execution.
// parse_graph() turns it into plain values and ensures that each node uses only earlier ones. It does not know the operators or
// their arguments (graph.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

struct GraphArgument {
  enum class Kind { kNode, kInteger, kNumber, kText, kBool, kNone, kDefault, kDevice, kDtype, kLayout, kFormat, kList };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;            // kNode: its index; kInteger; kBool: 0 or 1
  double number = 0;                   // kNumber
  std::string text{};                  // kText; kDtype, kLayout and kFormat: the name
  std::vector<GraphArgument> items{};  // kList
};

struct GraphNode {
  enum class Kind { kParameter, kBuffer, kConstant, kBatch, kOperator, kGet, kCompute, kGradients };
  Kind kind = Kind::kOperator;
  std::string name;                        // of the tensor, the operator ("aten::add.Tensor") or the calculation ("mul")
  std::vector<GraphArgument> arguments{};  // kGet: a node and an integer; kGradients: a bool
  std::size_t line = 0;                    // line number in the text, from 1
};

struct GraphText {
  std::string file;  // for messages
  std::vector<GraphNode> nodes;
  std::vector<std::size_t> results;  // nodes, at least one
};

// Throws UsageError naming file and line if the text has another format, is cut off, is longer than any graph, or uses a node
// that no earlier line makes. `file` is for messages only.
GraphText parse_graph(std::string_view text, const std::string& file);

// The same for a file. Throws UsageError if it cannot be read.
GraphText read_graph(const std::string& file);

}  // namespace ddprun::trainer
