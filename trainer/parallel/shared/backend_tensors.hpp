// Converts the tensors and options of c10d for the collectives in trainer/collectives, which process only bytes. SharedBackend
// calls these functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/collectives/operation.hpp"

namespace ddprun::trainer {

// The type and the number of elements of a tensor in a collective.
struct Elements {
  ElementType type = ElementType::kU8;
  std::uint64_t count = 0;
};

// Throws std::invalid_argument unless `tensor` is a dense CPU tensor. `call` is the name of the c10d function, for the message.
void require_dense(const at::Tensor& tensor, const char* call);
// Throws std::invalid_argument unless `tensors` has `count` dense CPU tensors.
void require_tensors(const std::vector<at::Tensor>& tensors, std::size_t count, const char* call);

// Describes a tensor for a collective that only moves data. Types that the collectives do not support (complex numbers,
// float8) are moved as bytes.
Elements elements_to_move(const at::Tensor& tensor);
// Describes a tensor for a reduction. Throws std::invalid_argument if the collectives do not support `reduction` for the
// tensor's type.
Elements elements_to_reduce(const at::Tensor& tensor, collectives::Reduction reduction, const char* call);
// Converts an operation of c10d. Throws std::invalid_argument for PREMUL_SUM, which only NCCL has.
collectives::Reduction reduction_of(const c10d::ReduceOp& op, const char* call);

// Returns the rank. Throws std::invalid_argument unless it is a rank of the group.
int root_of(std::int64_t rank, int ranks, const char* call);

std::byte* bytes_of(const at::Tensor& tensor);

// Returns all elements of `tensors`, one tensor after the other, in one new tensor. All of them must have the same type.
at::Tensor joined(const std::vector<at::Tensor>& tensors);
// Copies the elements of `flat` to `tensors`. This is the inverse of joined().
void split_into(const at::Tensor& flat, std::vector<at::Tensor>& tensors);

// A contiguous view of a tensor for the time of a collective. If the tensor is not contiguous, this is a copy, and finish()
// copies the result back.
class ContiguousView {
 public:
  explicit ContiguousView(const at::Tensor& tensor) : tensor_(tensor), view_(tensor.contiguous()) {}
  const at::Tensor& get() const { return view_; }
  void finish();

 private:
  at::Tensor tensor_;
  at::Tensor view_;
};

}  // namespace ddprun::trainer
