#include "trainer/parallel/peers.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>
#include <vector>

#include "trainer/parallel/group_breaker.hpp"
#include "trainer/parallel/shared/shared_backend.hpp"

namespace ddprun::trainer {
namespace {

void broadcast(c10d::ProcessGroup& group, at::Tensor& tensor, int source) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::BroadcastOptions options;
  options.rootRank = source;
  group.broadcast(tensors, options)->wait();
  tensor = tensors.front();
}

}  // namespace

Peers::Peers(c10::intrusive_ptr<c10d::ProcessGroup> group, int rank, int world, c10::Device device, GroupBreaker* breaker)
    : group_(std::move(group)), rank_(rank), world_(world), device_(device), breaker_(breaker) {}

std::string Peers::summation() const {
  return group_ && shared_backend_of(*group_) != nullptr ? "ranks" : "";
}

at::Tensor Peers::copy_of(const at::Tensor& values) const {
  return values.to(device_, values.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

// The collective runs on a copy of the values on this rank's device, because NCCL accepts only tensors on its GPU.
void Peers::reduce(const at::Tensor& values, c10d::ReduceOp::RedOpType operation) const {
  if (world_ == 1) return;
  std::vector<at::Tensor> shared{copy_of(values)};
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  group_->allreduce(shared, options)->wait();
  values.copy_(shared.front());
  check_not_broken();
}

void Peers::sum(std::span<double> values) const {
  reduce(at::from_blob(values.data(), {std::ssize(values)}, at::kDouble), c10d::ReduceOp::SUM);
}

std::int64_t Peers::smallest(std::int64_t value) const {
  smallest_of_each({&value, 1});
  return value;
}

void Peers::smallest_of_each(std::span<std::int64_t> values) const {
  reduce(at::from_blob(values.data(), {std::ssize(values)}, at::kLong), c10d::ReduceOp::MIN);
}

// A value is equal on all ranks if its minimum equals its maximum. Since ~ reverses the order of integers, the maximum is ~ of
// the minimum of ~value. So one collective computes both minima.
std::vector<bool> Peers::each_equal(std::span<const std::int64_t> values) const {
  std::vector<std::int64_t> extremes(values.begin(), values.end());
  for (const std::int64_t value : values) extremes.push_back(~value);
  smallest_of_each(extremes);
  std::vector<bool> equal;
  for (std::size_t i = 0; i < values.size(); ++i) equal.push_back(extremes[i] == ~extremes[i + values.size()]);
  return equal;
}

bool Peers::all_equal(std::span<const std::int64_t> values) const {
  return std::ranges::all_of(each_equal(values), [](bool equal) { return equal; });
}

bool Peers::device_aborts_silently() const {
  return breaker_ != nullptr && device_.is_cuda() && breaker_->aborts_silently();
}

void Peers::check_not_broken() const {
  if (device_aborts_silently()) check_alive();
}

void Peers::sync_device() const {
  if (!device_aborts_silently()) return;
  const c10::impl::VirtualGuardImpl cuda(device_.type());
  cuda.synchronizeStream(cuda.getStream(device_));
  check_alive();
}

void Peers::check_alive() const {
  if (breaker_ != nullptr && breaker_->broken()) {
    throw std::runtime_error("Connection closed by peer: the process group is being rebuilt");
  }
}

std::string Peers::from(int source, const std::string& text) const {
  if (world_ == 1) return text;
  const auto own_size = static_cast<std::int64_t>(text.size());
  at::Tensor size = at::full({1}, rank_ == source ? own_size : 0, at::TensorOptions(at::kLong).device(device_));
  broadcast(*group_, size, source);
  const std::int64_t length = size.item<std::int64_t>();
  check_not_broken();
  std::string result(static_cast<std::size_t>(length), '\0');
  if (result.empty()) return result;
  if (rank_ == source) result = text;
  at::Tensor own = at::from_blob(result.data(), {static_cast<std::int64_t>(result.size())}, at::kByte);
  at::Tensor shared = copy_of(own);
  broadcast(*group_, shared, source);
  own.copy_(shared);
  check_not_broken();
  return result;
}

std::vector<std::int64_t> Peers::from_all(std::span<const std::int64_t> values) const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(world_) * values.size(), 0);
  std::copy(values.begin(), values.end(), all.begin() + static_cast<std::ptrdiff_t>(values.size()) * rank_);
  reduce(at::from_blob(all.data(), {std::ssize(all)}, at::kLong), c10d::ReduceOp::SUM);
  return all;
}

void Peers::wait(const c10::intrusive_ptr<c10d::Work>& message) const {
  if (breaker_ != nullptr) {
    breaker_->wait(message);
  } else {
    message->wait();
  }
}

void Peers::send(const at::Tensor& tensor, int to) const {
  std::vector<at::Tensor> tensors{tensor};
  wait(group_->send(tensors, to, /*tag=*/0));
}

void Peers::receive(at::Tensor tensor, int from) const {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  wait(group_->recv(tensors, from, /*tag=*/0));
}

void Peers::send(const std::string& text, int to) const {
  send(at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong), to);
  std::string copy = text;
  if (!copy.empty()) send(at::from_blob(copy.data(), {static_cast<std::int64_t>(copy.size())}, at::kByte), to);
}

std::string Peers::receive_text(int from) const {
  const at::Tensor size = at::zeros({1}, at::kLong);
  receive(size, from);
  std::string text(static_cast<std::size_t>(size.item<std::int64_t>()), '\0');
  if (!text.empty()) receive(at::from_blob(text.data(), {static_cast<std::int64_t>(text.size())}, at::kByte), from);
  return text;
}

}  // namespace ddprun::trainer
