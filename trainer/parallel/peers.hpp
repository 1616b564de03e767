// Small agreements between the ranks beside the gradients: sums of figures, the smallest of a number, a text from rank 0. Each
// call is a collective: all ranks make it in the same order. In a world of one they return at once. Errors are those of the
// process group.
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
  // `group` may be null in a world of one. `breaker`: of the group, where it can be broken.
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
  // Everybody returns rank 0's text, or that of `source`, which all name alike.
  std::string from_rank_0(const std::string& text) const { return from(0, text); }
  std::string from(int source, const std::string& text) const;
  // Every rank's value, in the order of ranks.
  std::vector<std::int64_t> from_all(std::int64_t value) const { return from_all(std::span(&value, 1)); }
  // Likewise of several values, the first rank's first.
  std::vector<std::int64_t> from_all(std::span<const std::int64_t> values) const;
  // Between two ranks: what the one sends the other receives, in the same order. Tensors on the CPU, contiguous.
  void send(const std::string& text, int to) const;
  std::string receive_text(int from) const;
  void send(const at::Tensor& tensor, int to) const;
  void receive(at::Tensor tensor, int from) const;
  // Returns when every rank is here.
  void meet() const { smallest(0); }
  // Throws what is taken for a lost peer when the group is to be made anew: in a world of one no exchange would.
  void go_on() const;
  // Before what exchanges outside of this class have left on a GPU is used: waits until the device has it, then as go_on().
  // Nothing where a broken group's exchanges throw by themselves, or where it cannot be broken.
  void arrive() const;

 private:
  void wait(const c10::intrusive_ptr<c10d::Work>& message) const;
  bool device_ends_in_silence() const;
  // A result is on the host; a group that was broken before that may have left any numbers in it.
  void believe() const;
  // Memory of its own: a group that breaks may leave a collective behind that still uses it.
  at::Tensor copy_of(const at::Tensor& values) const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int rank_;
  int world_;
  c10::Device device_;
  GroupBreaker* breaker_;
};

}  // namespace ddprun::trainer
