#include "trainer/exported/graph.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/version.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/exported/graph_arguments.hpp"
#include "trainer/exported/graph_numbers.hpp"
#include "trainer/exported/operator_rule.hpp"

namespace ddprun::trainer {
namespace {

using c10::IValue;

struct Statement {
  GraphNode::Kind kind = GraphNode::Kind::kOperator;
  std::optional<c10::OperatorHandle> target{};  // for kOperator
  const Calculation* calculation = nullptr;     // for kCompute
  ArgumentCheck check = nullptr;                // for kOperator; null if the operator's kernel checks its arguments itself
  std::vector<Slot> arguments{};
  std::size_t from = 0, index = 0;  // for kGet
  bool gradients = true;            // for kGradients
  // Nodes whose results are used by this statement for the last time. These results are released after this statement.
  std::vector<std::size_t> last_uses{};
  std::size_t line = 0;
  std::string name{};
};

// The limit on the elements of one tensor in a graph: 64 GiB of float32. Without this limit, a graph with a wrong size would
// exhaust the machine's memory before it fails.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 34;

// `sizes` is the shape of a tensor that an operator creates. Throws std::domain_error if the tensor is too large.
void require_sizes(const IValue& sizes) {
  if (!sizes.isIntList()) return;
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes.toIntVector()) {
    if (size <= 1) continue;  // PyTorch infers a -1 from the other sizes, and checks other negative sizes
    if (__builtin_mul_overflow(elements, size, &elements) || elements > kMaxElements) {
      throw std::domain_error("requests a tensor of more than " + std::to_string(kMaxElements) + " elements");
    }
  }
}

IValue called(const Statement& statement, const Values& values, c10::Device device) {
  torch::jit::Stack stack;
  stack.reserve(statement.arguments.size());
  const auto& takes = statement.target->schema().arguments();
  for (std::size_t i = 0; i < statement.arguments.size(); ++i) {
    stack.push_back(value_in(statement.arguments[i], values, device));
    const std::string& name = takes[i].name();
    if (name == "size" || name == "repeats" || name == "output_size") require_sizes(stack.back());
  }
  if (statement.check != nullptr) statement.check(stack);
  statement.target->callBoxed(stack);
  if (stack.size() == 1) return std::move(stack.front());
  return c10::ivalue::Tuple::create(std::move(stack));
}

IValue element_of(const IValue& whole, std::size_t index) {
  const auto elements = whole.isTuple() ? whole.toTupleRef().elements().vec() : whole.toListRef().vec();
  return elements.at(index);
}

}  // namespace

struct Graph::Program {
  std::string file;
  std::vector<Input> inputs;
  std::vector<std::size_t> input_nodes;
  std::vector<Statement> statements;
  std::vector<std::size_t> results;
  std::vector<std::string> operators;
};

namespace {

std::optional<c10::OperatorHandle> find_operator(const std::string& name) {
  const std::size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? std::string() : name.substr(dot + 1)});
}

void require_operators(const GraphText& text) {
  std::map<std::string, std::size_t> missing;
  for (const GraphNode& node : text.nodes) {
    if (node.kind == GraphNode::Kind::kOperator && !find_operator(node.name)) missing.emplace(node.name, node.line);
  }
  if (missing.empty()) return;
  std::string names;
  for (const auto& [name, line] : missing) names += (names.empty() ? "" : ", ") + name + " (line " + std::to_string(line) + ")";
  throw UsageError(text.file + ": LibTorch " TORCH_VERSION " has no operator " + names +
                   "; export the model with PyTorch " TORCH_VERSION ", or change it so that it does not use this operator");
}

void require_allowed(const GraphText& text) {
  for (const GraphNode& node : text.nodes) {
    if (node.kind != GraphNode::Kind::kOperator) continue;
    if (const auto reason = reason_to_refuse(find_operator(node.name)->schema())) {
      throw UsageError(text.file + ":" + std::to_string(node.line) + ": the operator " + node.name +
                       " is not allowed, because it " + *reason +
                       ". Change the model so that it does not use this operator, and export it again");
    }
  }
}

void add_uses(const Slot& slot, std::set<std::size_t>& uses) {
  if (slot.kind == Slot::Kind::kNode) uses.insert(slot.node);
  for (const Slot& item : slot.items) add_uses(item, uses);
}

// Sets `last_uses` of each statement.
void find_last_uses(std::vector<Statement>& statements, const std::vector<std::size_t>& results) {
  std::set<std::size_t> needed(results.begin(), results.end());
  for (std::size_t i = statements.size(); i-- > 0;) {
    Statement* const statement = &statements[i];
    if (needed.insert(i).second) statement->last_uses.push_back(i);
    std::set<std::size_t> uses;
    for (const Slot& slot : statement->arguments) add_uses(slot, uses);
    if (statement->kind == GraphNode::Kind::kGet) uses.insert(statement->from);
    for (const std::size_t use : uses) {
      if (needed.insert(use).second) statement->last_uses.push_back(use);
    }
  }
}

Statement statement_of(const GraphText& text, const GraphNode& node) {
  Statement made{.kind = node.kind, .line = node.line, .name = node.name};
  const auto fail = [&](const std::string& problem) {
    throw UsageError(text.file + ":" + std::to_string(node.line) + ": " + problem);
  };
  if (node.kind == GraphNode::Kind::kOperator) {
    made.target = find_operator(node.name);
    made.check = argument_check_of(made.target->schema());
    made.arguments = slots_of(text, node, made.target->schema());
  } else if (node.kind == GraphNode::Kind::kGet) {
    made.from = static_cast<std::size_t>(node.arguments[0].integer);
    if (node.arguments[1].integer < 0) fail("'get' has a negative index");
    made.index = static_cast<std::size_t>(node.arguments[1].integer);
    made.name = "get";
  } else if (node.kind == GraphNode::Kind::kGradients) {
    made.gradients = node.arguments[0].integer != 0;
  } else if (node.kind == GraphNode::Kind::kCompute) {
    made.calculation = find_calculation(node.name);
    if (made.calculation == nullptr) fail("unknown calculation '" + node.name + "'");
    if (node.arguments.size() != made.calculation->arguments) {
      fail("'" + node.name + "' takes " + std::to_string(made.calculation->arguments) + " numbers");
    }
    for (const GraphArgument& given : node.arguments) {
      if (given.kind == GraphArgument::Kind::kNode) {
        made.arguments.push_back({.kind = Slot::Kind::kNode, .node = static_cast<std::size_t>(given.integer)});
      } else if (given.kind == GraphArgument::Kind::kInteger) {
        made.arguments.push_back({.ready = IValue(given.integer)});
      } else if (given.kind == GraphArgument::Kind::kNumber) {
        made.arguments.push_back({.ready = IValue(given.number)});
      } else {
        fail("'" + node.name + "' takes numbers");
      }
    }
  }
  return made;
}

}  // namespace

Graph::Graph(const GraphText& text) {
  require_operators(text);
  require_allowed(text);
  auto program = std::make_unique<Program>();
  program->file = text.file;
  program->results = text.results;
  std::set<std::string> operators;
  std::set<std::pair<GraphNode::Kind, std::string>> given;
  for (std::size_t i = 0; i < text.nodes.size(); ++i) {
    const GraphNode& node = text.nodes[i];
    if (node.kind == GraphNode::Kind::kOperator) operators.insert(node.name);
    if (node.kind <= GraphNode::Kind::kBatch) {
      if (!given.emplace(node.kind, node.name).second) {
        throw UsageError(text.file + ":" + std::to_string(node.line) + ": '" + node.name + "' is defined twice");
      }
      program->inputs.push_back({node.kind, node.name});
      program->input_nodes.push_back(i);
    }
    program->statements.push_back(statement_of(text, node));
  }
  find_last_uses(program->statements, program->results);
  program->operators.assign(operators.begin(), operators.end());
  program_ = std::move(program);
}

Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;

const std::vector<Graph::Input>& Graph::inputs() const {
  return program_->inputs;
}

std::size_t Graph::result_count() const {
  return program_->results.size();
}

const std::vector<std::string>& Graph::operators() const {
  return program_->operators;
}

std::vector<at::Tensor> Graph::run(std::span<const at::Tensor> inputs, c10::Device device) const {
  if (inputs.size() != program_->inputs.size()) {
    throw InternalError(program_->file + ": run with " + std::to_string(inputs.size()) + " tensors instead of " +
                        std::to_string(program_->inputs.size()));
  }
  const bool gradients = at::GradMode::is_enabled();
  const at::AutoGradMode restored(gradients);  // restores this mode when the function ends
  Values values(program_->statements.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) values[program_->input_nodes[i]] = inputs[i];
  for (std::size_t i = 0; i < program_->statements.size(); ++i) {
    const Statement& statement = program_->statements[i];
    const auto where = [&] { return program_->file + ":" + std::to_string(statement.line) + ": " + statement.name; };
    try {
      if (statement.kind == GraphNode::Kind::kOperator) {
        values[i] = called(statement, values, device);
      } else if (statement.kind == GraphNode::Kind::kGet) {
        values[i] = element_of(values[statement.from], statement.index);
      } else if (statement.kind == GraphNode::Kind::kCompute) {
        std::vector<IValue> numbers;
        for (const Slot& slot : statement.arguments) numbers.push_back(value_in(slot, values, device));
        values[i] = statement.calculation->function(numbers);
      } else if (statement.kind == GraphNode::Kind::kGradients) {
        at::GradMode::set_enabled(statement.gradients && gradients);
      }
    } catch (c10::Error& error) {
      error.add_context(where());
      throw;
    } catch (const std::out_of_range&) {
      throw UsageError(where() + ": the index is past the last result");
    } catch (const std::domain_error& error) {
      throw UsageError(where() + ": " + error.what());
    }
    for (const std::size_t used : statement.last_uses) values[used] = IValue();
  }
  std::vector<at::Tensor> results;
  for (const std::size_t node : program_->results) {
    if (!values[node].isTensor())
      throw UsageError(program_->file + ": its result %" + std::to_string(node) + " is not a tensor");
    results.push_back(values[node].toTensor());
  }
  return results;
}

}  // namespace ddprun::trainer
