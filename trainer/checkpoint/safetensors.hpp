// The safetensors format (https://huggingface.co/docs/safetensors): 8 bytes header length (little endian), JSON header with
// dtype, shape and offsets, raw data. Readable by the safetensors Python package and the other way round. Dtypes: F64 F32 F16
// BF16 I64 I32 I16 I8 U8 BOOL.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/hashed_file.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Takes the next bytes of a file.
using ByteSink = std::function<void(std::string_view bytes)>;

// A tensor's dtype, shape and place in the data; what the header says of it.
struct TensorLayout {
  std::size_t source = 0;  // index in the tensors given
  std::int64_t begin = 0;  // offset in the data, in bytes
  std::int64_t bytes = 0;
};

// How a file of these tensors looks, without a copy of them: tensors of wider elements come first, otherwise in the order
// given, so that every tensor is aligned to its element size. Names must be unique.
struct SafetensorsPlan {
  std::string head;  // length and JSON header, padded with spaces to a multiple of 8 bytes
  std::vector<TensorLayout> tensors;
  std::int64_t data_bytes = 0;
  std::int64_t file_bytes() const { return static_cast<std::int64_t>(head.size()) + data_bytes; }
};
SafetensorsPlan plan_safetensors(const std::vector<NamedTensor>& tensors,
                                 const std::map<std::string, std::string>& metadata = {});

// Hands the file's bytes to `sink` piece by piece: the head, then each tensor. At most one tensor is copied at a time, and only
// one that is not contiguous or not on the CPU.
void stream_safetensors(const SafetensorsPlan& plan, const std::vector<NamedTensor>& tensors, const ByteSink& sink);

// Bytes of a safetensors file. Tensors may be on any device; names must be unique.
std::string encode_safetensors(const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

struct SafetensorsContent {
  std::vector<NamedTensor> tensors;  // on the CPU, owning their memory, in the order of their offsets
  std::map<std::string, std::string> metadata;
};

// What a file's header says of a tensor.
struct StoredTensor {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes;
  std::int64_t begin = 0;  // in the file, in bytes
  std::int64_t bytes = 0;
  std::string problem{};  // why it can't be read: it has a dtype that is none of ours, and `type` is Undefined; empty: it can
};

// In the order of their offsets, without reading one. As strict as read_safetensors(), which it throws as, but for tensors of
// other dtypes: a file may hold some that nobody asks for.
std::vector<StoredTensor> list_safetensors(const std::filesystem::path& file);
// The same for the bytes of a file that is mapped already. Use this where the tensors are read from the mapping: the name may
// lead to another file by now. `file` is for messages.
std::vector<StoredTensor> list_safetensors(std::string_view bytes, const std::filesystem::path& file);

// Strict: header length, offsets, dtypes and shapes are checked against the file's size before anything is allocated, and a
// header is parsed within limits. Throws UsageError naming `file` and what is wrong; where the machine lacks memory or
// descriptors, what throw_if_machine_lacks() does.
SafetensorsContent read_safetensors(const std::filesystem::path& file);
// The same, and adds every byte of the file to `checksum` on the way.
SafetensorsContent read_safetensors(const std::filesystem::path& file, Checksum& checksum);

}  // namespace ddprun::trainer
