// Small agreements between the ranks, in addition to the gradients: sums of metrics, the smallest of all values, a text from
// rank 0. Each call is a collective: all ranks make the same calls in the same order. In a world of one they return
// immediately. Errors are those of the process group.
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
  // `group` may be null in a world of one. `breaker` is that of the group, if it can be broken.
  Peers(c10::intrusive_ptr<c10d::ProcessGroup> group, int rank, int world, c10::Device device, GroupBreaker* breaker = nullptr);

  int rank() const { return rank_; }
  int world() const { return world_; }
  // May be null in a world of one.
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }

  // Replaces each value by its sum over all ranks.
  void sum(std::span<double> values) const;
  std::int64_t smallest(std::int64_t value) const;
  // Replaces each value by the smallest of all ranks.
  void smallest_of_each(std::span<std::int64_t> values) const;
  std::int64_t largest(std::int64_t value) const { return -smallest(-value); }
  // Every rank returns rank 0's text, or that of `source`, which must be the same argument on all ranks.
  std::string from_rank_0(const std::string& text) const { return from(0, text); }
  std::string from(int source, const std::string& text) const;
  // Returns every rank's value, in the order of ranks.
  std::vector<std::int64_t> from_all(std::int64_t value) const { return from_all(std::span(&value, 1)); }
  // The same for several values per rank: all values of the first rank come first.
  std::vector<std::int64_t> from_all(std::span<const std::int64_t> values) const;
  // Point-to-point messages. The receiver must receive in the order in which the sender sends. Tensors must be contiguous and
  // on the CPU.
  void send(const std::string& text, int to) const;
  std::string receive_text(int from) const;
  void send(const at::Tensor& tensor, int to) const;
  void receive(at::Tensor tensor, int from) const;
  // Returns when every rank has called it (a barrier).
  void meet() const { smallest(0); }
  // Throws the error of a lost peer if a new group is ordered. In a world of one no exchange would throw it.
  void go_on() const;
  // Call this before using GPU results of exchanges outside of this class. Waits until the device has them, then does the same
  // as go_on(). Does nothing if a broken group's exchanges throw by themselves, or if the group cannot be broken.
  void arrive() const;

 private:
  void wait(const c10::intrusive_ptr<c10d::Work>& message) const;
  bool device_ends_in_silence() const;
  // Call when a result is on the host: a group that was broken earlier may have left any numbers in it.
  void believe() const;
  // Returns a copy in new memory: a group that breaks may leave a collective behind that still uses it.
  at::Tensor copy_of(const at::Tensor& values) const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int rank_;
  int world_;
  c10::Device device_;
  GroupBreaker* breaker_;
};

}  // namespace ddprun::trainer
