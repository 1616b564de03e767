// The folder that python/ddprun/export.py writes for a model: model.json, train.graph, eval.graph, init.safetensors and
// check.safetensors. read_model_folder() reads the first three and ensures that they belong together. The tensors are read
// later, when they are needed.
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
  std::vector<std::int64_t> sizes{};  // of a tensor in the batch: without the first dimension
  bool requires_grad = false;
  std::string tied{};  // for a parameter that is the same as an earlier one: the name of that one
};

// The conditions under which the checked batch was computed.
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
  std::int64_t smallest_batch = 1;   // the smallest batch for training: batch norm needs two samples
  std::vector<std::string> outputs;  // of the evaluation: the loss, then the metrics; each is a mean over the batch
  ExportedCheck check;
  Graph train;  // returns the loss
  Graph eval;   // returns the outputs
};

// Throws UsageError naming the file: missing, of another format, a field that is missing or of another type, graphs whose
// inputs or results differ from model.json, an operator that this LibTorch lacks.
ModelFolder read_model_folder(const std::filesystem::path& path);

// Returns the model's input tensors, from model.json alone.
std::vector<ExportedTensor> read_batch_of(const std::filesystem::path& path);

// Returns the tensors of init.safetensors or check.safetensors under their names there ("parameter.fc.weight"). Throws
// UsageError.
std::map<std::string, at::Tensor> read_tensors_of(const std::filesystem::path& path, const char* file);

// Returns the tensor with that name. Throws UsageError naming file and tensor if it is missing or has another type or shape.
at::Tensor tensor_like(const std::map<std::string, at::Tensor>& tensors, const std::filesystem::path& file,
                       const std::string& name, at::ScalarType type, at::IntArrayRef sizes);

// Identifies this model: a checksum of all files on which a run depends. Throws std::system_error.
std::string fingerprint_of_folder(const std::filesystem::path& path);

// For messages: "image float32 [1, 28, 28], label int64 []".
std::string batch_text(const std::vector<ExportedTensor>& batch);
std::string batch_text(const Description& samples);

}  // namespace ddprun::trainer
