// A c10d backend for CPU tensors of ranks on one machine, over trainer/collectives. Like Gloo it implements all collectives
// and messages, so DistributedDataParallel and any other user of a process group can use it.
//
// The problem. With two workers on one machine, Gloo takes most of the time of a small model's step. It sends each gradient
// over loopback TCP, through its own threads.
//
// The idea. A collective runs in the thread that calls it, and is complete when the call returns. The returned Work has
// already ended. A queue with a separate thread would let the backward pass continue during a wait. But both ranks need their
// core for the backward pass, and each handover between two threads takes longer than the all-reduce of a small bucket.
//
// In place. c10d's Reducer gets the memory of its buckets from the default backend of its group (allocateTensor). After
// share_buffers(true), this backend returns memory that all ranks map, so an all-reduce of a bucket copies nothing. If that
// memory is used up, it returns ordinary memory. Collectives on ordinary memory copy through the segment.
//
// Errors. A wrong argument throws immediately. A lost rank, an abort and an exceeded limit end the Work with a CollectiveError,
// which wait() and the future throw. Afterwards each call fails.
//
// Cost. A rank that reaches a collective early waits there. So time in collectives is counted, and `on_wait` informs the caller
// before and after each collective (see docs/hangs.md for the use of the stage).
//
// Messages. send() and recv() do not wait: their Work ends later if the other rank is not ready (send_receive.hpp). A rank
// advances its messages only in its calls of this backend, and not while it computes.
//
// Limits. recvAnysource() and sparse tensors are refused. Timeouts of single calls are ignored: the limit of the group applies.
#pragma once

#include <c10/util/FunctionRef.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "trainer/collectives/send_receive.hpp"
#include "trainer/collectives/shared_memory/segment.hpp"
#include "trainer/collectives/shared_memory/shared_transport.hpp"

namespace ddprun::trainer {

// The class is thread-safe, but calls of several threads run one after the other.
class SharedBackend final : public c10d::Backend {
 public:
  using Segment = collectives::Segment;
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // Attaches this process to the segment as `rank`. A wait of a collective may take at most `limit`.
  static std::variant<c10::intrusive_ptr<SharedBackend>, collectives::SegmentError> attach(
      const std::shared_ptr<const Segment>& segment, int rank, std::chrono::milliseconds limit);
  // Call attach() instead.
  SharedBackend(std::shared_ptr<const Segment> segment, std::unique_ptr<collectives::SharedTransport> transport);
  ~SharedBackend() override;

  // `on_wait(true)` is called before each collective of two or more ranks, and `on_wait(false)` after it, in the calling
  // thread. Call this before the first collective.
  void set_on_wait(std::function<void(bool)> on_wait) { on_wait_ = std::move(on_wait); }
  // Returns the total time in collectives since the backend was created.
  std::chrono::nanoseconds spent() const;

  // Sets whether allocateTensor() returns memory of the segment (the default) or ordinary memory.
  void share_buffers(bool share) { shares_buffers_ = share; }

  // Ends all current and later calls of all ranks. Does not block. Any thread may call this.
  void abort() override;
  void shutdown() override {}
  const std::string getBackendName() const override { return "shared"; }
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override;
  void setTimeout(std::chrono::milliseconds) override {}
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_rows,
                        std::vector<std::int64_t>& input_rows, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  struct Memory;
  class MessageWork;
  // Runs `collective` in this thread. Returns its error, or null.
  std::exception_ptr execute(c10::function_ref<void()> collective);
  // Calls execute(). Returns the ended Work, with `outputs` as its result.
  WorkPtr run(c10d::OpType type, Tensors outputs, c10::function_ref<void()> collective);
  WorkPtr ended(c10d::OpType type, Tensors outputs, const std::exception_ptr& error) const;

  void gather_parts(const at::Tensor& input, at::Tensor& output);
  void reduce_parts(const at::Tensor& input, at::Tensor& output, const c10d::ReduceOp& op);

  std::shared_ptr<Memory> memory_;  // shared with the tensors of allocateTensor()
  std::mutex mutex_;                // guards the transport and the members below
  std::unique_ptr<collectives::SharedTransport> transport_;
  collectives::Messages messages_;
  std::uint64_t calls_ = 0;
  std::function<void(bool)> on_wait_;
  std::atomic<bool> shares_buffers_ = true;
  std::atomic<std::int64_t> spent_ns_ = 0;
};

// Returns the default backend of a group if it is a SharedBackend, otherwise null.
SharedBackend* shared_backend_of(c10d::ProcessGroup& group);

}  // namespace ddprun::trainer
