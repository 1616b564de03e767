#include "trainer/parallel/shared/backend_tensors.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "trainer/collectives/reduction.hpp"

namespace ddprun::trainer {
namespace {

using collectives::Reduction;

std::optional<ElementType> element_type_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return ElementType::kF64;
    case at::kFloat:
      return ElementType::kF32;
    case at::kHalf:
      return ElementType::kF16;
    case at::kBFloat16:
      return ElementType::kBf16;
    case at::kLong:
      return ElementType::kI64;
    case at::kInt:
      return ElementType::kI32;
    case at::kShort:
      return ElementType::kI16;
    case at::kChar:
      return ElementType::kI8;
    case at::kByte:
      return ElementType::kU8;
    case at::kBool:
      return ElementType::kBool;
    default:
      return std::nullopt;
  }
}

std::uint64_t count_of(const at::Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel());
}

}  // namespace

void require_dense(const at::Tensor& tensor, const char* call) {
  if (tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided) return;
  throw std::invalid_argument(std::string(call) + " with the backend shared needs a dense CPU tensor, but got " +
                              (tensor.defined() ? tensor.toString() : "none") +
                              ". Move the tensor to the CPU, or use another backend");
}

void require_tensors(const std::vector<at::Tensor>& tensors, std::size_t count, const char* call) {
  if (tensors.size() != count) {
    throw std::invalid_argument(std::string(call) + " needs " + std::to_string(count) + " tensors, but got " +
                                std::to_string(tensors.size()));
  }
  for (const at::Tensor& tensor : tensors) require_dense(tensor, call);
}

Elements elements_to_move(const at::Tensor& tensor) {
  if (const auto type = element_type_of(tensor.scalar_type())) return {*type, count_of(tensor)};
  return {ElementType::kU8, static_cast<std::uint64_t>(tensor.nbytes())};
}

Elements elements_to_reduce(const at::Tensor& tensor, Reduction reduction, const char* call) {
  const auto type = element_type_of(tensor.scalar_type());
  if (type && collectives::can_reduce(*type, reduction)) return {*type, count_of(tensor)};
  throw std::invalid_argument(std::string(call) + " (" + collectives::name_of(reduction) + ") is not defined for " +
                              c10::toString(tensor.scalar_type()) + " tensors. Convert the tensor, or use another operation");
}

Reduction reduction_of(const c10d::ReduceOp& op, const char* call) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return Reduction::kSum;
    case c10d::ReduceOp::AVG:
      return Reduction::kAverage;
    case c10d::ReduceOp::PRODUCT:
      return Reduction::kProduct;
    case c10d::ReduceOp::MIN:
      return Reduction::kMin;
    case c10d::ReduceOp::MAX:
      return Reduction::kMax;
    case c10d::ReduceOp::BAND:
      return Reduction::kAnd;
    case c10d::ReduceOp::BOR:
      return Reduction::kOr;
    case c10d::ReduceOp::BXOR:
      return Reduction::kXor;
    default:
      throw std::invalid_argument(std::string(call) +
                                  " with this reduction needs NCCL. Use a sum, average, product, minimum, maximum or a bitwise "
                                  "operation");
  }
}

int root_of(std::int64_t rank, int ranks, const char* call) {
  if (rank >= 0 && rank < ranks) return static_cast<int>(rank);
  throw std::invalid_argument(std::string(call) + " needs a root rank from 0 to " + std::to_string(ranks - 1) + ", but got " +
                              std::to_string(rank));
}

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  at::Tensor flat = at::empty({elements}, tensors.front().options());
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    begin += tensor.numel();
  }
  return flat;
}

void split_into(const at::Tensor& flat, std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (at::Tensor& tensor : tensors) {
    tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

void ContiguousView::finish() {
  const at::NoGradGuard no_grad;
  if (!view_.is_same(tensor_)) tensor_.copy_(view_);
}

}  // namespace ddprun::trainer
