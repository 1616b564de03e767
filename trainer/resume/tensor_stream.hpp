// Reads a safetensors file whose bytes arrive in pieces, and writes each tensor directly into its final memory, such as the
// training state on a GPU. trainer/resume/divided_read.cpp uses this class.
//
// The problem. read_safetensors() returns new tensors in host memory, which the caller then copies into the state. So a resume
// held the state twice, also if the state was on a GPU.
//
// The idea. The caller provides the destination of each tensor. The class computes the checksum of the bytes in their order,
// and copies them to the destinations. The header is collected first, since it determines the position of each tensor.
//
// The drawback. The destinations are overwritten before the checksum is known. If finish() throws, they contain unusable
// values.
//
// A destination must be contiguous and have the stored shape and element type. Otherwise the tensor is collected in host
// memory. If only the memory format differs (channels_last), it is then copied to the destination, and its memory is released.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/hashed_file.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace ddprun::trainer {

// Returns the destination of a stored tensor, detached from autograd. An undefined tensor means that there is none.
using TensorDestination = std::function<at::Tensor(const std::string& name)>;

class TensorStream {
 public:
  // `file` is used only in messages. `file_bytes` is the length of the file.
  TensorStream(std::filesystem::path file, std::int64_t file_bytes, TensorDestination destination);

  // Adds the next bytes of the file. An invalid content is reported by finish(), so that this call can be made in the middle of
  // an exchange between ranks. Throws std::bad_alloc.
  void add(std::string_view bytes);

  // Call this after all bytes were added. Returns the tensors in the order of their offsets. A tensor that has fit its
  // destination shares memory with it. Throws UsageError if the checksum differs from `checksum`, or if the content is invalid.
  std::vector<NamedTensor> finish(const std::string& checksum);

 private:
  struct Filling {
    StoredTensor stored;
    at::Tensor destination{};  // undefined if there is none of this shape and type
    at::Tensor memory{};       // receives the bytes; undefined before the first byte
    std::int64_t filled = 0;   // bytes
  };
  void read_head();
  std::string_view take_head(std::string_view bytes);
  std::string_view fill(Filling& tensor, std::string_view bytes);
  void complete(Filling& tensor);

  std::filesystem::path file_;
  std::int64_t file_bytes_;
  TensorDestination destination_;
  Checksum checksum_;
  std::string head_;
  bool head_is_read_ = false;
  std::string problem_;  // the first error in the content; the remaining bytes are only added to the checksum
  std::vector<Filling> tensors_;
  std::size_t next_ = 0;  // index of the tensor that receives the next byte
};

}  // namespace ddprun::trainer
