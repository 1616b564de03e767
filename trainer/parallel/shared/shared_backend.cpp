// Implementation of shared_backend.hpp.
#include "trainer/parallel/shared/shared_backend.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "trainer/collectives/collectives.hpp"
#include "trainer/collectives/shared_memory/data_allocator.hpp"
#include "trainer/parallel/shared/backend_tensors.hpp"
#include "trainer/parallel/shared/message_work.hpp"

namespace ddprun::trainer {
namespace {

using c10d::OpType;
using c10d::Work;
using collectives::Reduction;
using Tensors = SharedBackend::Tensors;

// A Work that has already ended when it is created.
class EndedWork final : public Work {
 public:
  EndedWork(int rank, OpType type, Tensors outputs, std::exception_ptr error)
      : Work(rank, type), outputs_(std::move(outputs)), error_(std::move(error)) {
    finish(error_);
  }

  Tensors result() override { return outputs_; }
  void abort() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (error_) {
      future->setError(error_);
    } else {
      future->markCompleted(c10::IValue(outputs_));
    }
    return future;
  }

 private:
  Tensors outputs_;
  std::exception_ptr error_;
};

std::size_t size_of(int ranks) {
  return static_cast<std::size_t>(ranks);
}

// Throws std::invalid_argument unless `parts` has `ranks` times as many elements as `part`.
void require_parts(const at::Tensor& part, const at::Tensor& parts, int ranks, const char* call) {
  if (parts.numel() == part.numel() * ranks && parts.scalar_type() == part.scalar_type()) return;
  throw std::invalid_argument(std::string(call) + " over " + std::to_string(ranks) + " ranks needs tensors of n and " +
                              std::to_string(ranks) + " n elements of one type, but got " + std::to_string(part.numel()) + " " +
                              c10::toString(part.scalar_type()) + " and " + std::to_string(parts.numel()) + " " +
                              c10::toString(parts.scalar_type()));
}

// Throws std::invalid_argument unless each of `parts` has the type and the number of elements of `part`.
void require_equal_parts(const at::Tensor& part, const Tensors& parts, int ranks, const char* call) {
  require_tensors(parts, size_of(ranks), call);
  for (const at::Tensor& one : parts) require_parts(part, one, 1, call);
}

// Returns the number of elements for each rank. `rows` has the number of rows of the first dimension for each rank; empty for
// equal parts.
std::vector<std::uint64_t> elements_per_rank(const at::Tensor& tensor, const std::vector<std::int64_t>& rows, int ranks) {
  const std::int64_t all_rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::uint64_t scale = elements_to_move(tensor).count / static_cast<std::uint64_t>(std::max<std::int64_t>(all_rows, 1));
  std::int64_t sum = 0;
  for (const std::int64_t count : rows) sum += count;
  const bool valid = rows.empty() ? all_rows % ranks == 0 : rows.size() == size_of(ranks) && sum == all_rows;
  if (!valid) {
    throw std::invalid_argument("an all-to-all over " + std::to_string(ranks) +
                                " ranks needs a number of rows for each rank "
                                "whose sum is " +
                                std::to_string(all_rows) +
                                ", or no numbers and a number of rows that is a multiple of the ranks");
  }
  std::vector<std::uint64_t> elements;
  for (int rank = 0; rank < ranks; ++rank) {
    elements.push_back(scale * static_cast<std::uint64_t>(rows.empty() ? all_rows / ranks : rows[size_of(rank)]));
  }
  return elements;
}

}  // namespace

// The data area of this rank. Tensors in it keep the segment mapped after the backend is destroyed.
struct SharedBackend::Memory {
  Memory(std::shared_ptr<const Segment> owner, int rank)
      : segment(std::move(owner)),
        begin(segment->at(segment->layout().data_of(rank))),
        buffers(segment->layout().sizes.data_bytes) {}

  std::shared_ptr<const Segment> segment;
  std::byte* begin;
  std::mutex mutex;
  collectives::DataAllocator buffers;
};

std::variant<c10::intrusive_ptr<SharedBackend>, collectives::SegmentError> SharedBackend::attach(
    const std::shared_ptr<const Segment>& segment, int rank, std::chrono::milliseconds limit) {
  collectives::WaitSettings waits = collectives::waits_for(segment->ranks());
  waits.limit = limit;
  auto attached = collectives::SharedTransport::attach(segment, rank, waits);
  if (auto* const error = std::get_if<collectives::SegmentError>(&attached)) return std::move(*error);
  return c10::make_intrusive<SharedBackend>(segment,
                                            std::get<std::unique_ptr<collectives::SharedTransport>>(std::move(attached)));
}

SharedBackend::SharedBackend(std::shared_ptr<const Segment> segment, std::unique_ptr<collectives::SharedTransport> transport)
    : Backend(transport->rank(), transport->ranks()),
      memory_(std::make_shared<Memory>(std::move(segment), transport->rank())),
      transport_(std::move(transport)),
      messages_(*transport_) {}

SharedBackend::~SharedBackend() = default;

std::chrono::nanoseconds SharedBackend::spent() const {
  return std::chrono::nanoseconds(spent_ns_.load());
}

void SharedBackend::abort() {
  memory_->segment->abort({.kind = collectives::AbortCause::Kind::kOutside});
}

std::uint64_t SharedBackend::getSequenceNumberForGroup() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

at::Tensor SharedBackend::allocateTensor(long size, at::TensorOptions options) {
  const auto bytes = static_cast<std::uint64_t>(size) * options.dtype().itemsize();
  std::optional<std::uint64_t> offset;
  if (shares_buffers_ && size > 0 && options.device().is_cpu()) {
    const std::lock_guard lock(memory_->mutex);
    offset = memory_->buffers.allocate(bytes);
  }
  if (!offset) return at::empty({size}, options);
  const auto release = [memory = memory_, at = *offset](void*) {
    const std::lock_guard lock(memory->mutex);
    memory->buffers.release(at);
  };
  return at::from_blob(memory_->begin + *offset, {size}, release, options);
}

std::exception_ptr SharedBackend::execute(c10::function_ref<void()> collective) {
  std::exception_ptr error;
  const std::lock_guard lock(mutex_);
  const bool waits = on_wait_ && size_ > 1;
  if (waits) on_wait_(true);
  const auto begin = std::chrono::steady_clock::now();
  try {
    collective();
  } catch (const collectives::CollectiveError&) {
    error = std::current_exception();
  }
  spent_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count();
  if (waits) on_wait_(false);
  return error;
}

SharedBackend::WorkPtr SharedBackend::run(OpType type, Tensors outputs, c10::function_ref<void()> collective) {
  const std::exception_ptr error = execute([&] {
    ++calls_;
    collective();
  });
  return ended(type, std::move(outputs), error);
}

SharedBackend::WorkPtr SharedBackend::ended(OpType type, Tensors outputs, const std::exception_ptr& error) const {
  return c10::make_intrusive<EndedWork>(rank_, type, std::move(outputs), error);
}

SharedBackend::WorkPtr SharedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  require_tensors(tensors, 1, "broadcast");
  const int root = root_of(options.rootRank, size_, "broadcast");
  return run(OpType::BROADCAST, tensors, [&] {
    ContiguousView view(tensors[0]);
    const Elements elements = elements_to_move(view.get());
    collectives::broadcast(*transport_, elements.type, bytes_of(view.get()), elements.count, root);
    view.finish();
  });
}

SharedBackend::WorkPtr SharedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  require_tensors(tensors, 1, "allreduce");
  const Reduction reduction = reduction_of(options.reduceOp, "allreduce");
  const Elements elements = elements_to_reduce(tensors[0], reduction, "allreduce");
  return run(OpType::ALLREDUCE, tensors, [&] {
    ContiguousView view(tensors[0]);
    collectives::all_reduce(*transport_, elements.type, reduction, bytes_of(view.get()), elements.count);
    view.finish();
  });
}

SharedBackend::WorkPtr SharedBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const Reduction reduction = reduction_of(options.reduceOp, "allreduce_coalesced");
  for (const at::Tensor& tensor : tensors) {
    require_dense(tensor, "allreduce_coalesced");
    static_cast<void>(elements_to_reduce(tensor, reduction, "allreduce_coalesced"));
  }
  return run(OpType::ALLREDUCE_COALESCED, tensors, [&] {
    for (const at::Tensor& tensor : tensors) {
      ContiguousView view(tensor);
      const Elements elements = elements_to_reduce(tensor, reduction, "allreduce_coalesced");
      collectives::all_reduce(*transport_, elements.type, reduction, bytes_of(view.get()), elements.count);
      view.finish();
    }
  });
}

SharedBackend::WorkPtr SharedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  require_tensors(tensors, 1, "reduce");
  const int root = root_of(options.rootRank, size_, "reduce");
  const Reduction reduction = reduction_of(options.reduceOp, "reduce");
  const Elements elements = elements_to_reduce(tensors[0], reduction, "reduce");
  return run(OpType::REDUCE, tensors, [&] {
    ContiguousView view(tensors[0]);
    collectives::reduce(*transport_, elements.type, reduction, bytes_of(view.get()), elements.count, root);
    view.finish();
  });
}

void SharedBackend::gather_parts(const at::Tensor& input, at::Tensor& output) {
  const ContiguousView part(input);
  ContiguousView parts(output);
  const Elements elements = elements_to_move(part.get());
  collectives::all_gather(*transport_, elements.type, bytes_of(part.get()), bytes_of(parts.get()), elements.count);
  parts.finish();
}

SharedBackend::WorkPtr SharedBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) {
  require_tensors(inputs, 1, "allgather");
  if (outputs.size() != 1) throw std::invalid_argument("allgather needs one list of outputs");
  require_equal_parts(inputs[0], outputs[0], size_, "allgather");
  return run(OpType::ALLGATHER, outputs[0], [&] {
    at::Tensor flat = at::empty({inputs[0].numel() * size_}, inputs[0].options());
    gather_parts(inputs[0], flat);
    split_into(flat, outputs[0]);
  });
}

SharedBackend::WorkPtr SharedBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions&) {
  require_dense(input, "_allgather_base");
  require_dense(output, "_allgather_base");
  require_parts(input, output, size_, "_allgather_base");
  return run(OpType::_ALLGATHER_BASE, {output}, [&] { gather_parts(input, output); });
}

// outputs[r][i] gets inputs[i] of rank r.
SharedBackend::WorkPtr SharedBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions&) {
  if (outputs.size() != size_of(size_)) {
    throw std::invalid_argument("allgather_coalesced needs a list of outputs for each rank");
  }
  for (const Tensors& of_rank : outputs) require_tensors(of_rank, inputs.size(), "allgather_coalesced");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_dense(inputs[i], "allgather_coalesced");
    for (const Tensors& of_rank : outputs) require_parts(inputs[i], of_rank[i], 1, "allgather_coalesced");
  }
  Tensors all;
  for (const Tensors& of_rank : outputs) all.insert(all.end(), of_rank.begin(), of_rank.end());
  return run(OpType::COALESCED, all, [&] {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      at::Tensor flat = at::empty({inputs[i].numel() * size_}, inputs[i].options());
      gather_parts(inputs[i], flat);
      Tensors parts;
      for (const Tensors& of_rank : outputs) parts.push_back(of_rank[i]);
      split_into(flat, parts);
    }
  });
}

SharedBackend::WorkPtr SharedBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                      const c10d::AllgatherOptions&) {
  require_tensors(outputs, inputs.size(), "allgather_into_tensor_coalesced");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_dense(inputs[i], "allgather_into_tensor_coalesced");
    require_parts(inputs[i], outputs[i], size_, "allgather_into_tensor_coalesced");
  }
  return run(OpType::COALESCED, outputs, [&] {
    for (std::size_t i = 0; i < inputs.size(); ++i) gather_parts(inputs[i], outputs[i]);
  });
}

SharedBackend::WorkPtr SharedBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                             const c10d::GatherOptions& options) {
  require_tensors(inputs, 1, "gather");
  const int root = root_of(options.rootRank, size_, "gather");
  const bool is_root = root == rank_;
  if (outputs.size() != (is_root ? 1u : 0u)) throw std::invalid_argument("gather needs one list of outputs, on the root only");
  if (is_root) require_equal_parts(inputs[0], outputs[0], size_, "gather");
  return run(OpType::GATHER, is_root ? outputs[0] : Tensors{}, [&] {
    const ContiguousView part(inputs[0]);
    const Elements elements = elements_to_move(part.get());
    at::Tensor flat;
    if (is_root) flat = at::empty({inputs[0].numel() * size_}, inputs[0].options());
    collectives::gather(*transport_, elements.type, bytes_of(part.get()), is_root ? bytes_of(flat) : nullptr, elements.count,
                        root);
    if (is_root) split_into(flat, outputs[0]);
  });
}

SharedBackend::WorkPtr SharedBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                              const c10d::ScatterOptions& options) {
  require_tensors(outputs, 1, "scatter");
  const int root = root_of(options.rootRank, size_, "scatter");
  const bool is_root = root == rank_;
  if (inputs.size() != (is_root ? 1u : 0u)) throw std::invalid_argument("scatter needs one list of inputs, on the root only");
  if (is_root) require_equal_parts(outputs[0], inputs[0], size_, "scatter");
  return run(OpType::SCATTER, outputs, [&] {
    ContiguousView part(outputs[0]);
    const Elements elements = elements_to_move(part.get());
    const at::Tensor flat = is_root ? joined(inputs[0]) : at::Tensor();
    collectives::scatter(*transport_, elements.type, is_root ? bytes_of(flat) : nullptr, bytes_of(part.get()), elements.count,
                         root);
    part.finish();
  });
}

void SharedBackend::reduce_parts(const at::Tensor& input, at::Tensor& output, const c10d::ReduceOp& op) {
  const ContiguousView parts(input);
  ContiguousView part(output);
  const Reduction reduction = reduction_of(op, "reduce_scatter");
  const Elements elements = elements_to_reduce(output, reduction, "reduce_scatter");
  collectives::reduce_scatter(*transport_, elements.type, reduction, bytes_of(parts.get()), bytes_of(part.get()),
                              elements.count);
  part.finish();
}

SharedBackend::WorkPtr SharedBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                     const c10d::ReduceScatterOptions& options) {
  require_tensors(outputs, 1, "reduce_scatter");
  if (inputs.size() != 1) throw std::invalid_argument("reduce_scatter needs one list of inputs");
  require_equal_parts(outputs[0], inputs[0], size_, "reduce_scatter");
  static_cast<void>(elements_to_reduce(outputs[0], reduction_of(options.reduceOp, "reduce_scatter"), "reduce_scatter"));
  return run(OpType::REDUCE_SCATTER, outputs, [&] { reduce_parts(joined(inputs[0]), outputs[0], options.reduceOp); });
}

SharedBackend::WorkPtr SharedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::ReduceScatterOptions& options) {
  require_dense(input, "_reduce_scatter_base");
  require_dense(output, "_reduce_scatter_base");
  require_parts(output, input, size_, "_reduce_scatter_base");
  static_cast<void>(elements_to_reduce(output, reduction_of(options.reduceOp, "reduce_scatter"), "reduce_scatter"));
  return run(OpType::_REDUCE_SCATTER_BASE, {output}, [&] { reduce_parts(input, output, options.reduceOp); });
}

SharedBackend::WorkPtr SharedBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                      const c10d::ReduceScatterOptions& options) {
  require_tensors(inputs, outputs.size(), "reduce_scatter_tensor_coalesced");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    require_dense(outputs[i], "reduce_scatter_tensor_coalesced");
    require_parts(outputs[i], inputs[i], size_, "reduce_scatter_tensor_coalesced");
    static_cast<void>(elements_to_reduce(outputs[i], reduction_of(options.reduceOp, "reduce_scatter"), "reduce_scatter"));
  }
  return run(OpType::COALESCED, outputs, [&] {
    for (std::size_t i = 0; i < outputs.size(); ++i) reduce_parts(inputs[i], outputs[i], options.reduceOp);
  });
}

SharedBackend::WorkPtr SharedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                    std::vector<std::int64_t>& output_rows,
                                                    std::vector<std::int64_t>& input_rows, const c10d::AllToAllOptions&) {
  require_dense(input, "alltoall_base");
  require_dense(output, "alltoall_base");
  if (input.scalar_type() != output.scalar_type()) {
    throw std::invalid_argument("alltoall_base needs an input and an output of one type");
  }
  const auto sent = elements_per_rank(input, input_rows, size_);
  const auto received = elements_per_rank(output, output_rows, size_);
  return run(OpType::ALLTOALL_BASE, {output}, [&] {
    const ContiguousView from(input);
    ContiguousView to(output);
    collectives::all_to_all(*transport_, elements_to_move(from.get()).type, bytes_of(from.get()), sent, bytes_of(to.get()),
                            received);
    to.finish();
  });
}

SharedBackend::WorkPtr SharedBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) {
  require_tensors(outputs, size_of(size_), "alltoall");
  require_tensors(inputs, size_of(size_), "alltoall");
  std::vector<std::uint64_t> sent, received;
  for (const at::Tensor& tensor : inputs) sent.push_back(elements_to_move(tensor).count);
  for (const at::Tensor& tensor : outputs) {
    if (tensor.scalar_type() != inputs[0].scalar_type()) {
      throw std::invalid_argument("alltoall needs inputs and outputs of one type");
    }
    received.push_back(elements_to_move(tensor).count);
  }
  return run(OpType::ALLTOALL, outputs, [&] {
    const at::Tensor from = joined(inputs);
    std::int64_t elements = 0;
    for (const at::Tensor& tensor : outputs) elements += tensor.numel();
    const at::Tensor to = at::empty({elements}, from.options());
    collectives::all_to_all(*transport_, elements_to_move(from).type, bytes_of(from), sent, bytes_of(to), received);
    split_into(to, outputs);
  });
}

SharedBackend::WorkPtr SharedBackend::send(Tensors& tensors, int to, int tag) {
  require_tensors(tensors, 1, "send");
  root_of(to, size_, "send");
  const auto view = std::make_shared<ContiguousView>(tensors[0]);
  collectives::Messages::Started message;
  WorkPtr work = run(OpType::SEND, tensors, [&] {
    message = messages_.start_send(to, static_cast<std::uint64_t>(tag), {bytes_of(view->get()), view->get().nbytes()}, view);
  });
  if (message.number == 0) return work;
  return c10::make_intrusive<MessageWork>(c10::intrusive_ptr<SharedBackend>::unsafe_reclaim_from_nonowning(this), OpType::SEND,
                                          tensors, view, message);
}

SharedBackend::WorkPtr SharedBackend::recv(Tensors& tensors, int from, int tag) {
  require_tensors(tensors, 1, "recv");
  root_of(from, size_, "recv");
  const auto view = std::make_shared<ContiguousView>(tensors[0]);
  collectives::Messages::Started message;
  WorkPtr work = run(OpType::RECV, tensors, [&] {
    message =
        messages_.start_receive(from, static_cast<std::uint64_t>(tag), {bytes_of(view->get()), view->get().nbytes()}, view);
    if (message.number == 0) view->finish();
  });
  if (message.number == 0) return work;
  return c10::make_intrusive<MessageWork>(c10::intrusive_ptr<SharedBackend>::unsafe_reclaim_from_nonowning(this), OpType::RECV,
                                          tensors, view, message);
}

SharedBackend::WorkPtr SharedBackend::barrier(const c10d::BarrierOptions&) {
  return run(OpType::BARRIER, {}, [&] { collectives::barrier(*transport_); });
}

SharedBackend* shared_backend_of(c10d::ProcessGroup& group) {
  return dynamic_cast<SharedBackend*>(group.getDefaultBackend().get());
}

}  // namespace ddprun::trainer
