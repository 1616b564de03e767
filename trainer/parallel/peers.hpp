// Small collectives for everything except gradients: sums of metrics, the minimum of a value, a text from rank 0. All ranks
// must make the same calls in the same order. With a single rank, the calls return immediately. All calls can throw the process
// group's errors.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddprun::trainer {

class GroupBreaker;

class Peers {
 public:
  // `group` may be null if there is only one rank. `breaker` is the group's breaker, or null if the group cannot be broken.
  Peers(c10::intrusive_ptr<c10d::ProcessGroup> group, int rank, int world, c10::Device device, GroupBreaker* breaker = nullptr);

  int rank() const { return rank_; }
  int world() const { return world_; }
  // The result may be null if there is only one rank.
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }

  // Returns the order in which sums over ranks are added: "ranks", or "" for an order that Gloo or NCCL chooses.
  std::string summation() const;

  // Replaces each value by its sum over all ranks.
  void sum(std::span<double> values) const;
  std::int64_t smallest(std::int64_t value) const;
  // Replaces each value by its minimum over all ranks.
  void smallest_of_each(std::span<std::int64_t> values) const;
  std::int64_t largest(std::int64_t value) const { return -smallest(-value); }
  // For each value, returns true on all ranks if all ranks have passed the same value, otherwise false on all ranks.
  std::vector<bool> each_equal(std::span<const std::int64_t> values) const;
  // Returns true on all ranks if all values are equal on all ranks, otherwise false on all ranks.
  bool all_equal(std::span<const std::int64_t> values) const;
  // Both functions return the text of one rank on all ranks: of rank 0, or of rank `source`, which must be the same on all
  // ranks.
  std::string from_rank_0(const std::string& text) const { return from(0, text); }
  std::string from(int source, const std::string& text) const;
  // Returns the values of all ranks, in rank order.
  std::vector<std::int64_t> from_all(std::int64_t value) const { return from_all(std::span(&value, 1)); }
  // Returns the values of all ranks, several per rank: first all values of rank 0, then all values of rank 1, and so on.
  std::vector<std::int64_t> from_all(std::span<const std::int64_t> values) const;
  // Messages between two ranks. The receiver must make the matching calls in the order of the sender's calls. Tensors must be
  // contiguous and on the CPU.
  void send(const std::string& text, int to) const;
  std::string receive_text(int from) const;
  void send(const at::Tensor& tensor, int to) const;
  void receive(at::Tensor tensor, int from) const;
  // Returns when all ranks have called this function.
  void barrier() const { smallest(0); }
  // Throws the error for a lost rank if the group was broken because the agent has requested a new group. Collectives throw
  // this error too, but a single rank runs no collectives and needs this call.
  void check_alive() const;
  // Call this before the CPU uses results of NCCL collectives that this class has not started. Waits until the GPU has the
  // results, and then calls check_alive(). Does nothing if the collectives of a broken group throw an error anyway, or if the
  // group cannot be broken.
  void sync_device() const;

 private:
  void wait(const c10::intrusive_ptr<c10d::Work>& message) const;
  // Replaces `values`, which must be in host memory, by their reduction over all ranks.
  void reduce(const at::Tensor& values, c10d::ReduceOp::RedOpType operation) const;
  bool device_aborts_silently() const;
  // Throws if the group was aborted, since an aborted collective returns undefined values without an error. Call this after a
  // result has arrived in host memory and before it is used.
  void check_not_broken() const;
  // Returns a copy on this rank's device. Collectives must use such a copy instead of the caller's memory: after the group is
  // broken, Gloo may still write to the memory of a collective.
  at::Tensor copy_of(const at::Tensor& values) const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int rank_;
  int world_;
  c10::Device device_;
  GroupBreaker* breaker_;
};

}  // namespace ddprun::trainer
