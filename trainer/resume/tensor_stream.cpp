#include "trainer/resume/tensor_stream.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/checkpoint/manifest.hpp"

namespace ddprun::trainer {
namespace {

// A piece of this size is still in the processor's cache when it is copied after its checksum was computed.
constexpr std::size_t kStreamPiece = 1 << 20;

at::Tensor usable_destination(const at::Tensor& destination, const StoredTensor& stored) {
  const bool fits =
      destination.defined() && destination.scalar_type() == stored.type && destination.sizes().equals(stored.sizes);
  return fits ? destination : at::Tensor();
}

// Copies bytes to a position in the memory of a contiguous tensor, on any device.
void write_bytes(const at::Tensor& to, std::int64_t offset, std::string_view bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  // from_blob() needs a pointer to mutable memory, but copy_() only reads from it.
  const at::Tensor source = at::from_blob(const_cast<char*>(bytes.data()), {size}, at::kByte);
  to.view(-1).view(at::kByte).narrow(0, offset, size).copy_(source);
}

}  // namespace

TensorStream::TensorStream(std::filesystem::path file, std::int64_t file_bytes, TensorDestination destination)
    : file_(std::move(file)), file_bytes_(file_bytes), destination_(std::move(destination)) {}

void TensorStream::add(std::string_view bytes) {
  const at::NoGradGuard no_gradients;
  while (!bytes.empty()) {
    std::string_view piece = bytes.substr(0, kStreamPiece);
    bytes.remove_prefix(piece.size());
    checksum_.add(piece);
    if (!head_is_read_) piece = take_head(piece);
    while (!piece.empty() && problem_.empty() && next_ < tensors_.size()) piece = fill(tensors_[next_], piece);
  }
}

// Returns the bytes after the head. The length of the head is known only after its first bytes were added.
std::string_view TensorStream::take_head(std::string_view bytes) {
  for (;;) {
    const auto needed = static_cast<std::size_t>(safetensors_head_bytes(head_, file_bytes_));
    if (needed <= head_.size()) break;
    const std::string_view part = bytes.substr(0, needed - head_.size());
    if (part.empty()) return bytes;
    head_ += part;
    bytes.remove_prefix(part.size());
  }
  read_head();
  return bytes;
}

void TensorStream::read_head() {
  head_is_read_ = true;
  try {
    for (StoredTensor& stored : list_safetensors(head_, file_bytes_, file_)) {
      if (!stored.problem.empty()) throw UsageError("safetensors file " + file_.string() + ": " + stored.problem);
      at::Tensor destination = usable_destination(destination_(stored.name), stored);
      tensors_.push_back({.stored = std::move(stored), .destination = std::move(destination)});
    }
  } catch (const UsageError& error) {
    problem_ = error.what();
  }
  head_ = {};
}

// Returns the bytes after this tensor.
std::string_view TensorStream::fill(Filling& tensor, std::string_view bytes) {
  if (!tensor.memory.defined()) {
    const bool directly = tensor.destination.defined() && tensor.destination.is_contiguous();
    tensor.memory =
        directly ? tensor.destination : at::empty(tensor.stored.sizes, at::TensorOptions().dtype(tensor.stored.type));
  }
  const std::string_view part = bytes.substr(0, static_cast<std::size_t>(tensor.stored.bytes - tensor.filled));
  if (tensor.stored.type == at::kBool && std::ranges::any_of(part, [](char value) { return value != 0 && value != 1; })) {
    problem_ = "safetensors file " + file_.string() + ": tensor '" + tensor.stored.name +
               "' has dtype BOOL, but contains bytes other than 0 and 1";
  }
  if (!part.empty()) write_bytes(tensor.memory, tensor.filled, part);
  tensor.filled += static_cast<std::int64_t>(part.size());
  if (tensor.filled == tensor.stored.bytes) complete(tensor);
  return bytes.substr(part.size());
}

void TensorStream::complete(Filling& tensor) {
  ++next_;
  if (!tensor.destination.defined()) return;
  if (!tensor.destination.is_contiguous()) tensor.destination.copy_(tensor.memory);
  tensor.memory = tensor.destination;
}

std::vector<NamedTensor> TensorStream::finish(const std::string& checksum) {
  if (!head_is_read_) read_head();  // the file is too short for a header, which is an error
  if (const std::string found = checksum_.xxh3_128(); found != checksum) refuse_checksum(file_, found, checksum);
  if (!problem_.empty()) throw UsageError(problem_);
  std::vector<NamedTensor> tensors;
  for (Filling& tensor : tensors_) {
    if (!tensor.memory.defined()) fill(tensor, {});  // an empty tensor after the last byte of the file
    tensors.push_back({std::move(tensor.stored.name), std::move(tensor.memory)});
  }
  return tensors;
}

}  // namespace ddprun::trainer
