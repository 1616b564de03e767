#include "trainer/exported/graph_text.hpp"

#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/numbers.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::string_view kFirstLine = "ddprun graph 1";
constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;
constexpr int kMaxListDepth = 4;

using NodeKind = GraphNode::Kind;
using ArgumentKind = GraphArgument::Kind;

constexpr std::array<std::pair<std::string_view, NodeKind>, 8> kNodeKinds{{{"parameter", NodeKind::kParameter},
                                                                           {"buffer", NodeKind::kBuffer},
                                                                           {"constant", NodeKind::kConstant},
                                                                           {"batch", NodeKind::kBatch},
                                                                           {"op", NodeKind::kOperator},
                                                                           {"get", NodeKind::kGet},
                                                                           {"compute", NodeKind::kCompute},
                                                                           {"gradients", NodeKind::kGradients}}};

std::optional<NodeKind> node_kind_of(std::string_view word) {
  for (const auto& [name, kind] : kNodeKinds) {
    if (name == word) return kind;
  }
  return std::nullopt;
}

// Reads one line of the text, word by word.
class LineReader {
 public:
  LineReader(const std::string& file, std::size_t line, std::string_view text, std::size_t nodes)
      : file_(file), line_(line), rest_(text), nodes_(nodes) {}

  [[noreturn]] void fail(const std::string& problem) const {
    throw UsageError(file_ + ":" + std::to_string(line_) + ": " + problem);
  }

  bool at_end() const { return rest_.empty(); }

  std::string_view word(const char* expected) {
    if (rest_.empty()) fail(std::string("expected ") + expected + ", found the end of the line");
    const std::size_t end = rest_.find(' ');
    const std::string_view found = rest_.substr(0, end);
    if (found.empty()) fail(std::string("expected ") + expected + ", found two spaces");
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (end != std::string_view::npos && rest_.empty()) fail("ends with a space");
    return found;
  }

  void expect_word(std::string_view expected) {
    const std::string_view found = word("more");
    if (found != expected) fail("expected '" + std::string(expected) + "', found '" + shown(found) + "'");
  }

  // Decodes a percent-encoded word. Words are encoded because spaces separate them.
  std::string decoded(std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '%') {
        out += text[i];
        continue;
      }
      const std::string_view digits = text.substr(i + 1, 2);
      const auto byte = exact_number<unsigned char>(digits, 16);
      if (digits.size() != 2 || !byte) fail("'" + shown(text) + "' has an invalid % escape");
      out += static_cast<char>(*byte);
      i += 2;
    }
    return out;
  }

  std::size_t node(std::string_view word) const {
    const auto number = word.starts_with('%') ? exact_number<std::size_t>(word.substr(1)) : std::nullopt;
    if (!number) fail("expected a node such as %3, found '" + shown(word) + "'");
    if (*number >= nodes_) fail("uses %" + std::to_string(*number) + ", which no earlier line defines");
    return *number;
  }

  GraphArgument argument(int depth = 0) {
    const std::string_view found = word("an argument");
    if (found == "[") return list(depth + 1);
    if (found == "none") return {};
    if (found == "default") return {.kind = ArgumentKind::kDefault};
    if (found == "device") return {.kind = ArgumentKind::kDevice};
    if (found == "true" || found == "false") return {.kind = ArgumentKind::kBool, .integer = found == "true" ? 1 : 0};
    if (found.front() == '%') return {.kind = ArgumentKind::kNode, .integer = static_cast<std::int64_t>(node(found))};
    for (const auto& [prefix, kind] : {std::pair{"dtype:", ArgumentKind::kDtype}, std::pair{"layout:", ArgumentKind::kLayout},
                                       std::pair{"format:", ArgumentKind::kFormat}}) {
      const std::string_view before = prefix;
      if (found.starts_with(before)) return {.kind = kind, .text = std::string(found.substr(before.size()))};
    }
    const std::string_view value = found.substr(1);
    if (found.front() == 's') return {.kind = ArgumentKind::kText, .text = decoded(value)};
    if (found.front() == 'i') {
      if (const auto number = exact_number<std::int64_t>(value)) return {.kind = ArgumentKind::kInteger, .integer = *number};
    }
    if (found.front() == 'f') {
      if (const auto number = exact_number<double>(value)) return {.kind = ArgumentKind::kNumber, .number = *number};
    }
    fail("expected an argument, found '" + shown(found) + "'");
  }

 private:
  GraphArgument list(int depth) {
    if (depth > kMaxListDepth)
      fail("has lists nested " + std::to_string(depth) + " deep; expected at most " + std::to_string(kMaxListDepth));
    GraphArgument made{.kind = ArgumentKind::kList};
    while (!rest_.starts_with(']')) made.items.push_back(argument(depth));
    expect_word("]");
    return made;
  }

  static std::string shown(std::string_view text) {
    constexpr std::size_t kShown = 60;
    std::string out;
    for (const char c : text.substr(0, kShown)) out += c >= ' ' && c <= '~' ? c : '?';
    return text.size() > kShown ? out + "..." : out;
  }

  const std::string& file_;
  std::size_t line_;
  std::string_view rest_;
  std::size_t nodes_;  // number of nodes on the previous lines
};

GraphNode read_node(LineReader& reader, std::size_t line) {
  const std::string_view word = reader.word("the kind of the node");
  const std::optional<NodeKind> kind = node_kind_of(word);
  if (!kind)
    reader.fail("expected parameter, buffer, constant, batch, op, get, compute or gradients, found '" + std::string(word) +
                "'");
  GraphNode node{.kind = *kind, .name = {}, .line = line};
  if (*kind != NodeKind::kGet && *kind != NodeKind::kGradients) node.name = reader.decoded(reader.word("a name"));
  while (!reader.at_end()) node.arguments.push_back(reader.argument());
  const bool is_input = *kind <= NodeKind::kBatch;
  if (is_input && !node.arguments.empty())
    reader.fail("expected no arguments after a parameter, buffer, constant or batch tensor");
  if (*kind == NodeKind::kGet && (node.arguments.size() != 2 || node.arguments[0].kind != ArgumentKind::kNode ||
                                  node.arguments[1].kind != ArgumentKind::kInteger)) {
    reader.fail("expected a node and a number after 'get'");
  }
  if (*kind == NodeKind::kGradients && (node.arguments.size() != 1 || node.arguments[0].kind != ArgumentKind::kBool)) {
    reader.fail("expected true or false after 'gradients'");
  }
  return node;
}

}  // namespace

GraphText parse_graph(std::string_view text, const std::string& file) {
  GraphText graph{.file = file, .nodes = {}, .results = {}};
  const auto fail = [&](std::size_t line, const std::string& problem) {
    throw UsageError(file + ":" + std::to_string(line) + ": " + problem);
  };
  if (text.size() > kMaxTextBytes) fail(1, "the graph has too many bytes; expected at most " + std::to_string(kMaxTextBytes));
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) fail(line, "the last line is cut off");
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == 1) {
      if (content != kFirstLine)
        fail(line, "expected '" + std::string(kFirstLine) +
                       "': this version of ddprun cannot read the file. Export the model again with its exporter");
      continue;
    }
    if (!graph.results.empty()) fail(line, "expected the end of the file after 'return'");
    LineReader reader(file, line, content, graph.nodes.size());
    if (content.starts_with("return")) {
      reader.expect_word("return");
      do graph.results.push_back(reader.node(reader.word("a node")));
      while (!reader.at_end());
      continue;
    }
    reader.expect_word("%" + std::to_string(graph.nodes.size()));
    reader.expect_word("=");
    graph.nodes.push_back(read_node(reader, line));
  }
  if (graph.results.empty()) throw UsageError(file + ": has no line 'return': the file is empty or cut off");
  return graph;
}

GraphText read_graph(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text;
  if (in) text.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  if (!in.is_open() || in.bad())
    throw UsageError(file + ": cannot be read; expected a file that python -m ddprun.export wrote");
  return parse_graph(text, file);
}

}  // namespace ddprun::trainer
