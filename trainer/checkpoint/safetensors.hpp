// The safetensors format (https://huggingface.co/docs/safetensors): 8 bytes header length (little endian), JSON header with dtype,
// shape and offsets, raw data. Readable by the safetensors Python package and the other way round.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Bytes of a safetensors file. Tensors may be on any device; names must be unique.
std::string encode_safetensors(const std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata = {});

struct SafetensorsContent {
  std::vector<NamedTensor> tensors;  // on the CPU, owning their memory, in the order of their offsets
  std::map<std::string, std::string> metadata;
};

// Strict: header length, offsets, dtypes and shapes are checked against the file's size before anything is allocated.
// Throws UsageError naming `file` and what is wrong.
SafetensorsContent read_safetensors(const std::filesystem::path& file);

}  // namespace ddprun::trainer
