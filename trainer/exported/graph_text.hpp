// The text of a graph, as python/ddprun/graph.py writes it and describes it there: a line a node, in the order in which they
// run. parse_graph() turns it into plain values and promises that each node uses earlier ones only; what an operator is, and
// what it takes, is not known here (graph.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

struct GraphArgument {
  enum class Kind { kNode, kInteger, kNumber, kText, kBool, kNone, kDefault, kDevice, kDtype, kLayout, kFormat, kList };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;            // kNode: which; kInteger; kBool: 0 or 1
  double number = 0;                   // kNumber
  std::string text{};                  // kText; kDtype, kLayout and kFormat: the name
  std::vector<GraphArgument> items{};  // kList
};

struct GraphNode {
  enum class Kind { kParameter, kBuffer, kConstant, kBatch, kOperator, kGet, kCompute, kGradients };
  Kind kind = Kind::kOperator;
  std::string name;                        // of the tensor, the operator ("aten::add.Tensor") or the function ("mul")
  std::vector<GraphArgument> arguments{};  // kGet: a node and an integer; kGradients: a bool
  std::size_t line = 0;                    // of the text, counted from 1
};

struct GraphText {
  std::string file;  // for messages
  std::vector<GraphNode> nodes;
  std::vector<std::size_t> results;  // nodes, at least one
};

// Throws UsageError naming file and line: not of this format, cut off, longer than any graph is, or a node that is not there
// yet. `file` is for messages only.
GraphText parse_graph(std::string_view text, const std::string& file);

// The same of a file. Throws UsageError when it cannot be read.
GraphText read_graph(const std::string& file);

}  // namespace ddprun::trainer
