#include "trainer/exported/model_folder.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/json_problem.hpp"
#include "trainer/checkpoint/dtypes.hpp"
#include "trainer/checkpoint/hashed_file.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace ddprun::trainer {
namespace {

using nlohmann::json;

constexpr int kModelFormat = 1;
constexpr std::uintmax_t kMaxModelJsonBytes = std::uintmax_t{64} << 20;
constexpr const char* kModelJson = "model.json";

std::string type_text(at::ScalarType type) {
  const Dtype* const dtype = find_dtype(type);
  return dtype == nullptr || dtype->torch.empty() ? c10::toString(type) : std::string(dtype->torch);
}

std::string sizes_text(at::IntArrayRef sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// A value of model.json. The class also records the value's path in the file, for error messages.
class Field {
 public:
  Field(const json& value, std::string file, std::string where)
      : value_(&value), file_(std::move(file)), where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& problem) const {
    throw UsageError(file_ + ": " + (where_.empty() ? "" : where_ + ": ") + problem);
  }

  bool has(const char* name) const { return value_->is_object() && value_->contains(name); }

  Field at(const char* name) const {
    if (!value_->is_object()) fail("expected an object");
    const auto found = value_->find(name);
    if (found == value_->end()) fail(std::string("has no '") + name + "'");
    return {*found, file_, where_.empty() ? name : where_ + "." + name};
  }

  std::vector<Field> items() const {
    if (!value_->is_array()) fail("expected an array");
    std::vector<Field> fields;
    for (std::size_t i = 0; i < value_->size(); ++i) {
      fields.emplace_back((*value_)[i], file_, where_ + "[" + std::to_string(i) + "]");
    }
    return fields;
  }

  std::string text() const {
    if (!value_->is_string()) fail("expected a string");
    return value_->get<std::string>();
  }
  bool truth() const {
    if (!value_->is_boolean()) fail("expected true or false");
    return value_->get<bool>();
  }
  std::int64_t count() const {
    constexpr std::int64_t kLargest = std::int64_t{1} << 53;
    if (!value_->is_number_integer() || value_->get<std::int64_t>() < 0 || value_->get<std::int64_t>() > kLargest) {
      fail("expected a whole number of 0 or more");
    }
    return value_->get<std::int64_t>();
  }

 private:
  const json* value_;
  std::string file_;
  std::string where_;
};

struct ModelJson {
  std::string file;
  json content;
  Field root() const { return {content, file, ""}; }
};

ModelJson read_model_json(const std::filesystem::path& folder) {
  ModelJson read{.file = (folder / kModelJson).string(), .content = {}};
  std::error_code unknown;
  std::ifstream in(read.file, std::ios::binary);
  const std::uintmax_t bytes = std::filesystem::file_size(read.file, unknown);
  if (!in.is_open() || unknown) {
    throw UsageError("model.path: " + read.file + " cannot be read; expected the folder that 'python -m ddprun.export' wrote");
  }
  if (bytes > kMaxModelJsonBytes)
    throw UsageError(read.file + ": has " + std::to_string(bytes) + " bytes; expected at most " +
                     std::to_string(kMaxModelJsonBytes));
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  try {
    read.content = json::parse(text);
  } catch (const json::exception& error) {
    throw UsageError(read.file + ": is not valid JSON (" + json_problem(error, text) + ")");
  }
  const std::int64_t format = read.root().at("format").count();
  if (format != kModelFormat) {
    throw UsageError(read.file + ": has format " + std::to_string(format) + ", but this version reads format " +
                     std::to_string(kModelFormat) + "; export the model again with this version's exporter");
  }
  return read;
}

at::ScalarType type_of(const Field& field) {
  const std::string text = field.text();
  const Dtype* const dtype = find_dtype(&Dtype::torch, text);
  if (dtype != nullptr && !dtype->safetensors.empty()) return dtype->type;
  field.fail("unknown dtype '" + text + "'");
}

std::vector<ExportedTensor> tensors_of(const Field& list, bool are_parameters) {
  std::vector<ExportedTensor> tensors;
  std::set<std::string> names;
  for (const Field& entry : list.items()) {
    ExportedTensor tensor{.name = entry.at("name").text(), .type = type_of(entry.at("dtype"))};
    for (const Field& size : entry.at("shape").items()) tensor.sizes.push_back(size.count());
    if (are_parameters) tensor.requires_grad = entry.at("requires_grad").truth();
    if (are_parameters && entry.has("tied")) {
      tensor.tied = entry.at("tied").text();
      if (!names.contains(tensor.tied)) entry.at("tied").fail("no earlier parameter is named '" + tensor.tied + "'");
    }
    if (tensor.requires_grad && tensor.type != at::kFloat) {
      entry.fail("the trained parameter '" + tensor.name + "' has dtype " + type_text(tensor.type) + "; expected float32");
    }
    if (!names.insert(tensor.name).second) entry.fail("'" + tensor.name + "' is listed twice");
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<ExportedTensor> batch_of(const Field& root) {
  std::vector<ExportedTensor> batch = tensors_of(root.at("batch"), false);
  if (batch.empty()) root.at("batch").fail("has no tensors");
  return batch;
}

const std::vector<ExportedTensor>& list_of_kind(const ModelFolder& folder, GraphNode::Kind kind) {
  switch (kind) {
    case GraphNode::Kind::kParameter:
      return folder.parameters;
    case GraphNode::Kind::kBuffer:
      return folder.buffers;
    case GraphNode::Kind::kConstant:
      return folder.constants;
    default:
      return folder.batch;
  }
}

void check_graph(const ModelFolder& folder, const Graph& graph, const char* file, std::size_t results) {
  const std::string where = (folder.path / file).string();
  for (const Graph::Input& input : graph.inputs()) {
    const auto& known = list_of_kind(folder, input.kind);
    if (std::ranges::find(known, input.name, &ExportedTensor::name) != known.end()) continue;
    throw UsageError(where + ": takes the tensor '" + input.name + "', which model.json does not list");
  }
  if (graph.result_count() != results) {
    throw UsageError(where + ": returns " + std::to_string(graph.result_count()) + " tensors; expected " +
                     std::to_string(results) + " for the outputs in model.json");
  }
}

}  // namespace

ModelFolder read_model_folder(const std::filesystem::path& path) {
  const ModelJson read = read_model_json(path);
  const Field root = read.root();
  if (const std::string reduction = root.at("reduction").text(); reduction != "mean") {
    root.at("reduction").fail("expected 'mean', found '" + reduction + "'");
  }
  std::vector<std::string> outputs;
  for (const Field& output : root.at("outputs").items()) outputs.push_back(output.text());
  if (outputs.empty() || outputs.front() != "loss") root.at("outputs").fail("expected 'loss' as the first output");
  const Field check = root.at("check");
  ModelFolder folder{.path = path,
                     .torch = root.at("torch").text(),
                     .parameters = tensors_of(root.at("parameters"), true),
                     .buffers = tensors_of(root.at("buffers"), false),
                     .constants = tensors_of(root.at("constants"), false),
                     .batch = batch_of(root),
                     .smallest_batch = root.has("smallest_batch") ? root.at("smallest_batch").count() : 1,
                     .outputs = std::move(outputs),
                     .check = {.seed = static_cast<std::uint64_t>(check.at("seed").count()),
                               .draws = check.at("draws").truth(),
                               .threads = static_cast<int>(check.at("threads").count()),
                               .cpu = check.at("cpu").text(),
                               .cpu_capability = check.at("cpu_capability").text()},
                     .train = Graph(read_graph((path / "train.graph").string())),
                     .eval = Graph(read_graph((path / "eval.graph").string()))};
  check_graph(folder, folder.train, "train.graph", 1);
  check_graph(folder, folder.eval, "eval.graph", folder.outputs.size());
  return folder;
}

std::vector<ExportedTensor> read_batch_of(const std::filesystem::path& path) {
  return batch_of(read_model_json(path).root());
}

std::map<std::string, at::Tensor> read_tensors_of(const std::filesystem::path& path, const char* file) {
  std::map<std::string, at::Tensor> tensors;
  for (NamedTensor& named : read_safetensors(path / file).tensors) tensors.emplace(named.name, std::move(named.tensor));
  return tensors;
}

at::Tensor tensor_like(const std::map<std::string, at::Tensor>& tensors, const std::filesystem::path& file,
                       const std::string& name, at::ScalarType type, at::IntArrayRef sizes) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw UsageError(file.string() + ": has no tensor '" + name + "'");
  const at::Tensor& tensor = found->second;
  if (tensor.scalar_type() == type && tensor.sizes() == sizes) return tensor;
  throw UsageError(file.string() + ": '" + name + "' is " + type_text(tensor.scalar_type()) + " " + sizes_text(tensor.sizes()) +
                   "; expected " + type_text(type) + " " + sizes_text(sizes) + ", as in model.json");
}

std::string fingerprint_of_folder(const std::filesystem::path& path) {
  std::string facts;
  for (const char* file : {kModelJson, "train.graph", "eval.graph", "init.safetensors", "check.safetensors"}) {
    facts += facts_of_file(path / file).xxh3_128;
  }
  return xxh3_128_of(facts);
}

std::string batch_text(const std::vector<ExportedTensor>& batch) {
  std::string text;
  for (const ExportedTensor& tensor : batch) {
    text += (text.empty() ? "" : ", ") + tensor.name + " " + type_text(tensor.type) + " " + sizes_text(tensor.sizes);
  }
  return text;
}

std::string batch_text(const Description& samples) {
  std::string text;
  for (const TensorDescription& tensor : samples.tensors) {
    text += (text.empty() ? "" : ", ") + type_text(tensor.type) + " " + sizes_text(tensor.sizes);
  }
  return text;
}

}  // namespace ddprun::trainer
