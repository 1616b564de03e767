// A transport that calls a function before and after each publication and each wait. In this function, the tests of faults
// abort, kill or stop a rank. So they can test a fault at each place of the protocol.
#pragma once

#include <functional>
#include <string>

#include "trainer/collectives/transport.hpp"

namespace ddprun::trainer::collectives {

class HookedTransport final : public Transport {
 public:
  // The argument of `hook` is the number of earlier calls of `hook`.
  HookedTransport(Transport& inner, std::function<void(int)> hook) : inner_(inner), hook_(std::move(hook)) {}

  int calls() const { return calls_; }

  int rank() const override { return inner_.rank(); }
  int ranks() const override { return inner_.ranks(); }
  void start(const OperationDescriptor& operation) override {
    call_hook();
    inner_.start(operation);
  }
  OperationDescriptor started_by(int rank) const override { return inner_.started_by(rank); }
  std::uint32_t arrive() override {
    call_hook();
    const std::uint32_t phase = inner_.arrive();
    call_hook();
    return phase;
  }
  void await_all(std::uint32_t phase) override {
    inner_.await_all(phase);
    call_hook();
  }
  void fail_mismatch(const std::string& message) override { inner_.fail_mismatch(message); }
  std::size_t next_slot() override { return inner_.next_slot(); }
  std::size_t slot_bytes() const override { return inner_.slot_bytes(); }
  std::byte* slot_of(int rank, std::size_t slot) const override { return inner_.slot_of(rank, slot); }
  std::optional<std::uint64_t> offset_of(const void* buffer, std::size_t bytes) const override {
    return inner_.offset_of(buffer, bytes);
  }
  std::byte* exposed_at(int rank, std::uint64_t offset, std::size_t bytes) const override {
    return inner_.exposed_at(rank, offset, bytes);
  }
  std::size_t cell_bytes() const override { return inner_.cell_bytes(); }
  std::byte* cell_of(int from, int to, std::size_t cell) const override { return inner_.cell_of(from, to, cell); }
  void arrive_in_lane(int from, int to, LaneEnd end) override {
    call_hook();
    inner_.arrive_in_lane(from, to, end);
    call_hook();
  }
  void await_in_lane(int from, int to, LaneEnd end, std::uint64_t cells) override {
    inner_.await_in_lane(from, to, end, cells);
    call_hook();
  }
  bool reached_in_lane(int from, int to, LaneEnd end, std::uint64_t cells) override {
    return inner_.reached_in_lane(from, to, end, cells);
  }
  void set_progress(std::function<bool()> progress) override { inner_.set_progress(std::move(progress)); }

 private:
  void call_hook() { hook_(calls_++); }

  Transport& inner_;
  std::function<void(int)> hook_;
  int calls_ = 0;
};

}  // namespace ddprun::trainer::collectives
