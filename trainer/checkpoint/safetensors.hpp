// The safetensors format (https://huggingface.co/docs/safetensors). A file consists of 8 bytes with the header's length (little
// endian), a JSON header with dtype, shape and offsets, and the raw data. The safetensors Python package reads our files, and
// we read its files. The dtypes are F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
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

// The source of one tensor's data, and its place in the file.
struct TensorLayout {
  std::size_t source = 0;  // index in the caller's list of tensors
  std::int64_t begin = 0;  // offset in bytes from the start of the data section
  std::int64_t bytes = 0;
};

// The layout of a file, without the tensors' data. Tensors with wider elements come first, so that every tensor is aligned to
// its element size. Tensors with elements of equal width keep the given order. Names must be unique.
struct SafetensorsPlan {
  std::string head;  // length field and JSON header, padded with spaces to a multiple of 8 bytes
  std::vector<TensorLayout> tensors;
  std::int64_t data_bytes = 0;
  std::int64_t file_bytes() const { return static_cast<std::int64_t>(head.size()) + data_bytes; }
};
SafetensorsPlan plan_safetensors(const std::vector<NamedTensor>& tensors,
                                 const std::map<std::string, std::string>& metadata = {});

// Passes the file's bytes to `sink` in several calls: the head, then each tensor. At most one tensor is copied at a time, and
// only if it is not contiguous or not on the CPU.
void stream_safetensors(const SafetensorsPlan& plan, const std::vector<NamedTensor>& tensors, const ByteSink& sink);

// Returns the bytes of a safetensors file. Tensors may be on any device; names must be unique.
std::string encode_safetensors(const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

struct SafetensorsContent {
  std::vector<NamedTensor> tensors;  // CPU tensors that own their memory, in the order of their offsets
  std::map<std::string, std::string> metadata;
};

// The header's entry for one tensor.
struct StoredTensor {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes;
  std::int64_t begin = 0;  // offset in the file, in bytes
  std::int64_t bytes = 0;
  std::string problem{};  // why the dtype is unsupported (`type` is then Undefined); empty if it is supported
};

// Lists the tensors of a file in the order of their offsets, without reading their data. It checks the header like
// read_safetensors() and throws the same errors. But it allows unsupported dtypes, since a file may contain tensors that are
// never read.
std::vector<StoredTensor> list_safetensors(const std::filesystem::path& file);
// Lists the tensors of a file that is already mapped. A caller that reads the tensors from the mapping needs this overload,
// because the path may meanwhile refer to another file. `file` is used only in error messages.
std::vector<StoredTensor> list_safetensors(std::string_view bytes, const std::filesystem::path& file);
// Lists the tensors of a file of `file_bytes` bytes of which only the first bytes are known. `start` must have at least
// safetensors_head_bytes() bytes, unless the file is shorter.
std::vector<StoredTensor> list_safetensors(std::string_view start, std::int64_t file_bytes, const std::filesystem::path& file);
// Returns the number of bytes at the start of a file that list_safetensors() needs. `start` has the first bytes of the file. If
// these do not contain the length of the header, returns the number of bytes that contain it. The result is also that number
// if the header exceeds the file or the limit of the format, which list_safetensors() reports.
std::int64_t safetensors_head_bytes(std::string_view start, std::int64_t file_bytes);

// Reads all tensors. Header length, offsets, dtypes and shapes are checked against the file's size before memory is allocated.
// The parser limits the size and the depth of the header. Throws UsageError with `file` and the problem. If the machine lacks
// memory or descriptors, throws the error of throw_if_resources_exhausted().
SafetensorsContent read_safetensors(const std::filesystem::path& file);
// Reads all tensors, and adds every byte of the file to `checksum`.
SafetensorsContent read_safetensors(const std::filesystem::path& file, Checksum& checksum);

}  // namespace ddprun::trainer
