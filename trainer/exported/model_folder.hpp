// The folder that python/ddprun/export.py writes of a model: model.json, train.graph, eval.graph, init.safetensors and
// check.safetensors. read_model_folder() reads the first three and promises that they belong together; the tensors are read
// where they are needed.
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
  std::vector<std::int64_t> sizes{};  // of a batch's tensor: without the first dimension
  bool requires_grad = false;
  std::string tied{};  // a parameter that is another one too: that one's name, which comes earlier
};

// How the checked batch was computed.
struct ExportedCheck {
  std::uint64_t seed = 0;
  bool draws = false;  // what is compared depends on random numbers
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
  std::int64_t smallest_batch = 1;   // the fewest samples that it trains with: batch norm wants two
  std::vector<std::string> outputs;  // of evaluation: the loss, then the figures; each a mean over the batch
  ExportedCheck check;
  Graph train;  // gives the loss
  Graph eval;   // gives the outputs
};

// Throws UsageError naming the file: missing, of another format, a field that is missing or of another type, graphs that take
// or give something else than model.json says, an operator that this LibTorch does not have.
ModelFolder read_model_folder(const std::filesystem::path& path);

// What the model takes, from model.json alone.
std::vector<ExportedTensor> read_batch_of(const std::filesystem::path& path);

// Tensors of init.safetensors or check.safetensors by their names there ("parameter.fc.weight"). Throws UsageError.
std::map<std::string, at::Tensor> read_tensors_of(const std::filesystem::path& path, const char* file);

// The tensor of that name. Throws UsageError naming file and tensor when it is missing or not of that type and shape.
at::Tensor tensor_like(const std::map<std::string, at::Tensor>& tensors, const std::filesystem::path& file,
                       const std::string& name, at::ScalarType type, at::IntArrayRef sizes);

// Tells this model from others: a checksum of all that a run depends on. Throws std::system_error.
std::string fingerprint_of_folder(const std::filesystem::path& path);

// "image float32 [1, 28, 28], label int64 []": for messages.
std::string batch_text(const std::vector<ExportedTensor>& batch);
std::string batch_text(const Description& samples);

}  // namespace ddprun::trainer
