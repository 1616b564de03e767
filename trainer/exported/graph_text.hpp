// The text of a graph. python/ddprun/graph.py writes it and describes the format: one line per node, in the order of
// execution. parse_graph() parses the text and ensures that each node uses only earlier nodes. It does not check operators and
// their arguments, because graph.hpp checks them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

struct GraphArgument {
  enum class Kind { kNode, kInteger, kNumber, kText, kBool, kNone, kDefault, kDevice, kDtype, kLayout, kFormat, kList };
  Kind kind = Kind::kNone;
  std::int64_t integer = 0;            // index of the node for kNode, value for kInteger, 0 or 1 for kBool
  double number = 0;                   // value for kNumber
  std::string text{};                  // value for kText, name for kDtype, kLayout and kFormat
  std::vector<GraphArgument> items{};  // elements of kList
};

struct GraphNode {
  enum class Kind { kParameter, kBuffer, kConstant, kBatch, kOperator, kGet, kCompute, kGradients };
  Kind kind = Kind::kOperator;
  std::string name;                        // name of the tensor, the operator ("aten::add.Tensor") or the calculation ("mul")
  std::vector<GraphArgument> arguments{};  // kGet has a node and an integer, and kGradients has a bool
  std::size_t line = 0;                    // line number in the text, from 1
};

struct GraphText {
  std::string file;  // name of the file, for messages
  std::vector<GraphNode> nodes;
  std::vector<std::size_t> results;  // indices of the nodes that the graph returns; at least one
};

// Throws UsageError with file and line if the text is malformed, truncated or too long, or if a line uses a node that no
// earlier line defines. `file` is used only in messages.
GraphText parse_graph(std::string_view text, const std::string& file);

// Reads the file and calls parse_graph(). Also throws UsageError if the file cannot be read.
GraphText read_graph(const std::string& file);

}  // namespace ddprun::trainer
