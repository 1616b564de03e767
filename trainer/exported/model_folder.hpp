// The folder that python/ddprun/export.py writes for a model: model.json, train.graph, eval.graph, init.safetensors and
// check.safetensors. read_model_folder() reads the first three files and ensures that they are consistent. The tensors in the
// other two are read when they are needed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "trainer/data/source.hpp"
#include "trainer/exported/graph.hpp"

namespace ddprun::trainer {

struct ExportedTensor {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes{};  // the tensor's shape; for a tensor of the batch, without the first dimension
  bool requires_grad = false;
  std::string tied{};  // name of the earlier parameter that shares this parameter's tensor; empty if none does
};

// The conditions under which the exporter computed the results in check.safetensors.
struct ExportedCheck {
  std::uint64_t seed = 0;
  bool draws = false;  // true if the results depend on random numbers
  int threads = 1;
  std::string cpu;
  std::string cpu_capability;
};

struct ModelFolder {
  std::filesystem::path path;
  std::string torch;
  std::vector<ExportedTensor> parameters;
  std::vector<ExportedTensor> buffers;
  std::vector<ExportedTensor> constants;
  std::vector<ExportedTensor> batch;
  std::int64_t smallest_batch = 1;   // minimum number of samples in a training pass; more than 1 for batch norm
  std::vector<std::string> outputs;  // names of the evaluation results, first the loss; each is a mean over the batch
  ExportedCheck check;
  Graph train;  // returns the loss
  Graph eval;   // returns the outputs
};

// Throws UsageError with the file's name if a file is missing or malformed, if a field is missing or has a different type, if
// the inputs or results of a graph differ from model.json, or if this LibTorch lacks an operator.
ModelFolder read_model_folder(const std::filesystem::path& path);

// Describes the model's input tensors. Reads only model.json.
std::vector<ExportedTensor> read_batch_of(const std::filesystem::path& path);

// Returns the tensors of init.safetensors or check.safetensors by their names in the file, such as "parameter.fc.weight".
// Throws UsageError.
std::map<std::string, at::Tensor> read_tensors_of(const std::filesystem::path& path, const char* file);

// Returns the tensor `name`. Throws UsageError with the names of file and tensor if the tensor is missing or has a different
// type or shape.
at::Tensor tensor_like(const std::map<std::string, at::Tensor>& tensors, const std::filesystem::path& file,
                       const std::string& name, at::ScalarType type, at::IntArrayRef sizes);

// Returns a checksum of all files of the folder that affect the training. Throws std::system_error.
std::string fingerprint_of_folder(const std::filesystem::path& path);

// Returns a text for messages, such as "image float32 [1, 28, 28], label int64 []".
std::string batch_text(const std::vector<ExportedTensor>& batch);
std::string batch_text(const Description& samples);

}  // namespace ddprun::trainer
