// The safetensors format (https://huggingface.co/docs/safetensors): 8 bytes of header length (little endian), a JSON header
// with dtype, shape and offsets, then raw data. The safetensors Python package reads our files, and we read its files. Dtypes:
// F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
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

// Receives the next bytes of a file.
using ByteSink = std::function<void(std::string_view bytes)>;

// Source and position of a tensor's data.
struct TensorLayout {
  std::size_t source = 0;  // index in the given tensors
  std::int64_t begin = 0;  // offset in the data, in bytes
  std::int64_t bytes = 0;
};

// The layout of a file with these tensors, without a copy of them. Tensors with wider elements come first, so that every tensor
// is aligned to its element size. Otherwise they keep the given order. Names must be unique.
struct SafetensorsPlan {
  std::string head;  // length and JSON header, padded with spaces to a multiple of 8 bytes
  std::vector<TensorLayout> tensors;
  std::int64_t data_bytes = 0;
  std::int64_t file_bytes() const { return static_cast<std::int64_t>(head.size()) + data_bytes; }
};
SafetensorsPlan plan_safetensors(const std::vector<NamedTensor>& tensors,
                                 const std::map<std::string, std::string>& metadata = {});

// Passes the file's bytes to `sink` piece by piece: the head, then each tensor. At most one tensor is copied at a time, and
// only if it is not contiguous or not on the CPU.
void stream_safetensors(const SafetensorsPlan& plan, const std::vector<NamedTensor>& tensors, const ByteSink& sink);

// Returns the bytes of a safetensors file. Tensors may be on any device; names must be unique.
std::string encode_safetensors(const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

struct SafetensorsContent {
  std::vector<NamedTensor> tensors;  // on the CPU, owning their memory, in the order of their offsets
  std::map<std::string, std::string> metadata;
};

// The header's entry for one tensor.
struct StoredTensor {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes;
  std::int64_t begin = 0;  // in the file, in bytes
  std::int64_t bytes = 0;
  std::string problem{};  // why it can't be read: its dtype is unsupported, and `type` is Undefined; empty if it can
};

// Lists the tensors in the order of their offsets, without reading one. As strict as read_safetensors(), with the same errors,
// except that unsupported dtypes are allowed: a file may hold tensors that are never read.
std::vector<StoredTensor> list_safetensors(const std::filesystem::path& file);
// The same for the bytes of a file that is already mapped. Use this if the tensors are read from the mapping: meanwhile the
// name may refer to another file. `file` is for messages.
std::vector<StoredTensor> list_safetensors(std::string_view bytes, const std::filesystem::path& file);

// Strict: header length, offsets, dtypes and shapes are checked against the file's size before anything is allocated. The
// header is parsed within limits. Throws UsageError naming `file` and the problem. If the machine lacks memory or descriptors,
// throws the error of throw_if_machine_lacks().
SafetensorsContent read_safetensors(const std::filesystem::path& file);
// The same, and adds every byte of the file to `checksum` on the way.
SafetensorsContent read_safetensors(const std::filesystem::path& file, Checksum& checksum);

}  // namespace ddprun::trainer
