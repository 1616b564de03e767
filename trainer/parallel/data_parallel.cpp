// See data_parallel.hpp. The order of calls is that of Python's DistributedDataParallel, with three differences. Each has a
// note below: buckets are rebuilt at the end of the first step, gradients are dropped between steps, and buffers are broadcast
// after the step.
#include "trainer/parallel/data_parallel.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/parallel/compression.hpp"
#include "trainer/parallel/state_digest.hpp"
#include "trainer/parallel/torch_version.hpp"

namespace ddprun::trainer {
namespace {

using Buckets = std::vector<std::vector<std::size_t>>;

constexpr std::size_t kBroadcastBytes = 250u << 20;  // the same as in Python
constexpr std::size_t kNamesShown = 20;

// c10d's Reducer with access to three states that Python's wrapper can't reach: whether a backward pass finished, which
// parameters have no gradient yet, and whether buckets from a checkpoint are already rebuilt.
class OpenReducer final : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  // Reducer records the time at which each gradient was ready. Here -1 means that it is not ready yet.
  void expect_gradients(const std::vector<at::Tensor>& outputs) {
    std::fill(backward_stats_.begin(), backward_stats_.end(), -1);
    prepare_for_backward(outputs);
  }
  // Removes the counts that earlier micro-batches left in the static graph: see the note below.
  void forget_hooks() {
    for (auto& [index, times] : numGradHooksTriggeredMap_) times = 0;
  }
  bool finished() const { return !require_finalize_ && !expect_autograd_hooks_; }
  std::vector<std::size_t> missing() const {
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < backward_stats_.size(); ++i) {
      if (backward_stats_[i] == -1) indices.push_back(i);
    }
    return indices;
  }

  bool rebuilt() const { return has_rebuilt_bucket_; }
  void mark_rebuilt() { has_rebuilt_bucket_ = true; }
  // For a static graph, whose first step has no order of arrival. The reverse of the order of definition is used instead.
  void assume_reverse_order() {
    if (!should_rebuild_buckets()) return;
    rebuilt_params_.clear();
    rebuilt_param_indices_.clear();
    for (std::size_t i = params_.size(); i-- > 0;) push_rebuilt_params(i);
  }
};

std::size_t megabytes(double size) {
  return static_cast<std::size_t>(std::llround(size * 1024 * 1024));
}

std::string describe(const NamedTensor& parameter) {
  std::ostringstream text;
  text << parameter.name << ' ' << c10::toString(parameter.tensor.scalar_type()) << ' ' << parameter.tensor.sizes();
  return text.str();
}

void wait_for(const c10::intrusive_ptr<c10d::Work>& work) {
  work->wait();
}

// Exchanges small values between the ranks, on a device that the group's default backend supports.
class Agreement {
 public:
  Agreement(c10d::ProcessGroup& group, c10::Device device) : group_(group), device_(device) {}

  std::vector<std::int64_t> from_rank0(const std::vector<std::int64_t>& values) {
    std::vector<at::Tensor> tensors{at::tensor(values, at::kLong).to(device_)};
    wait_for(group_.broadcast(tensors));
    return to_values(tensors[0]);
  }
  std::string from_rank0(const std::string& text) {
    const auto length = from_rank0(std::vector{static_cast<std::int64_t>(text.size())})[0];
    std::vector<std::int64_t> codes(static_cast<std::size_t>(length));
    for (std::size_t i = 0; i < std::min(codes.size(), text.size()); ++i) codes[i] = text[i];
    std::string received;
    for (const auto code : from_rank0(codes)) received += static_cast<char>(code);
    return received;
  }
  // Returns each rank's value, in the order of ranks.
  std::vector<std::int64_t> from_all(std::int64_t value) {
    std::vector<std::int64_t> own(static_cast<std::size_t>(group_.getSize()), 0);
    own[static_cast<std::size_t>(group_.getRank())] = value;
    std::vector<at::Tensor> tensors{at::tensor(own, at::kLong).to(device_)};
    wait_for(group_.allreduce(tensors));
    return to_values(tensors[0]);
  }

 private:
  static std::vector<std::int64_t> to_values(const at::Tensor& tensor) {
    const at::Tensor host = tensor.cpu();
    const auto* const data = host.const_data_ptr<std::int64_t>();
    return {data, data + host.numel()};
  }

  c10d::ProcessGroup& group_;
  c10::Device device_;
};

// Every rank gets an error with rank and name if models differ. With verify_params_across_processes() alone, some ranks only
// report a lost peer.
void verify_same_model(const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& buffers,
                       Agreement& agreement) {
  std::string own;
  for (const auto* list : {&parameters, &buffers}) {
    for (const auto& tensor : *list) own += describe(tensor) + '\n';
  }
  std::istringstream rank0_lines(agreement.from_rank0(own));
  std::istringstream own_lines(own);
  std::string found, expected, own_line, rank0_line;
  std::int64_t differs = 0;
  while (true) {
    const bool more_own = static_cast<bool>(std::getline(own_lines, own_line));
    const bool more_rank0 = static_cast<bool>(std::getline(rank0_lines, rank0_line));
    if (!more_own && !more_rank0) break;
    if (more_own == more_rank0 && own_line == rank0_line) continue;
    differs = 1;
    found = more_own ? '"' + own_line + '"' : "nothing";
    expected = more_rank0 ? '"' + rank0_line + '"' : "nothing";
    break;
  }
  const auto all = agreement.from_all(differs);
  if (differs) {
    throw UsageError("this rank's model is not rank 0's: expected " + expected + ", found " + found +
                     ". Give all ranks the same config and the same version of ddptrain");
  }
  std::string others;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != 0) others += (others.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (!others.empty()) {
    throw UsageError("rank 0's model is not that of rank " + others +
                     " (its own error says which tensor differs). Give all ranks the same "
                     "config and the same version of ddptrain");
  }
}

// Note [Rank 0's state is sent only where it differs]
// Ranks that used the same seed, or read the same checkpoint, already have the same bits. Comparing digests is much faster than
// sending: 5 ms instead of 100 for 45 MB, without a second copy of the state in memory.
void take_state_of_rank0(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::vector<at::Tensor>& state,
                         Agreement& agreement) {
  const bool on_cpu = std::all_of(state.begin(), state.end(), [](const at::Tensor& tensor) { return tensor.is_cpu(); });
  if (on_cpu) {
    const auto own = state_digest(state);
    const auto differs = agreement.from_all(agreement.from_rank0(own) == own ? 0 : 1);
    if (std::all_of(differs.begin(), differs.end(), [](std::int64_t one) { return one == 0; })) return;
  }
  c10d::broadcast_coalesced(group, state, kBroadcastBytes);
}

// The first assignment of Python's wrapper: a single bucket if the order of arrival will be known after a step, otherwise by
// size. It is reversed, since gradients arrive in about the reverse order of definition.
Buckets first_buckets(const std::vector<at::Tensor>& parameters, const DdpConfig& config) {
  const bool will_be_rebuilt = config.static_graph || !config.find_unused_parameters;
  const std::vector<std::size_t> limits =
      will_be_rebuilt ? std::vector<std::size_t>{static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())}
                      : std::vector<std::size_t>{megabytes(config.first_bucket_mb), megabytes(config.bucket_mb)};
  Buckets buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, limits));
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

void check_order(const BucketOrder& order, std::size_t parameters) {
  std::vector<bool> seen(parameters, false);
  std::size_t count = 0;
  for (const auto& bucket : order) {
    for (const auto index : bucket) {
      const auto at = static_cast<std::size_t>(index);
      if (index < 0 || at >= parameters || seen[at]) {
        throw BadCheckpointError(
            "the checkpoint's order of gradients has parameter " + std::to_string(index) +
            (index >= 0 && at < parameters ? " twice" : ", but the model has " + std::to_string(parameters)) +
            ". The checkpoint is of another model or damaged: resume from another one");
      }
      seen[at] = true;
      ++count;
    }
    if (bucket.empty())
      throw BadCheckpointError("the checkpoint's order of gradients has an empty bucket: resume from another one");
  }
  if (count != parameters) {
    throw BadCheckpointError("the checkpoint's order of gradients has " + std::to_string(count) +
                             " parameters, but the model has " + std::to_string(parameters) +
                             ". The checkpoint is of another model or damaged: resume from another one");
  }
}

}  // namespace

struct DataParallel::Impl {
  void make_reducer(const DdpConfig& config, const BucketOrder& saved);
  [[noreturn]] void report_missing() const;
  void rebuild_buckets();
  void note_when_computed(const at::Tensor& output);

  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> buffers;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  bool find_unused = false;
  bool static_graph = false;
  bool first_step = true;
  std::optional<std::chrono::steady_clock::time_point>
      computed;  // when this rank's gradients of the current backward pass were ready
  std::chrono::nanoseconds waited{};
  const std::vector<at::Tensor> no_outputs;
  // Null in a world of one. The Logger refers to the Reducer, so it is destroyed first. Without a Logger,
  // find_unused_parameters crashes.
  std::shared_ptr<OpenReducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
};

void DataParallel::Impl::make_reducer(const DdpConfig& config, const BucketOrder& saved) {
  Agreement agreement(*group, parameters[0].device());
  // All ranks use rank 0's order. So a new rank that joins with an empty order gets the same buckets (decision 19).
  // Format: [1 if saved or 0, bucket of the first entry, its parameter, ...]. Its length is fixed, so one broadcast is enough.
  Buckets buckets;
  std::vector<std::int64_t> packed{saved.empty() ? 0 : 1};
  if (group->getRank() == 0) {
    if (saved.empty()) {
      buckets = first_buckets(parameters, config);
    } else {
      check_order(saved, parameters.size());
      for (const auto& bucket : saved) buckets.emplace_back(bucket.begin(), bucket.end());
    }
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      for (const auto index : buckets[i]) {
        packed.push_back(static_cast<std::int64_t>(i));
        packed.push_back(static_cast<std::int64_t>(index));
      }
    }
  }
  packed.resize(1 + 2 * parameters.size(), 0);
  packed = agreement.from_rank0(packed);
  buckets.clear();
  for (std::size_t i = 1; i < packed.size(); i += 2) {
    buckets.resize(static_cast<std::size_t>(packed[i]) + 1);
    buckets.back().push_back(static_cast<std::size_t>(packed[i + 1]));
  }

  std::unordered_map<std::size_t, std::string> names_by_index;
  for (std::size_t i = 0; i < names.size(); ++i) names_by_index[i] = names[i];
  reducer = std::make_shared<OpenReducer>(parameters, std::move(buckets), group, std::vector<bool>(parameters.size(), false),
                                          static_cast<std::int64_t>(megabytes(config.bucket_mb)), config.find_unused_parameters,
                                          config.gradient_as_bucket_view, std::move(names_by_index),
                                          static_cast<std::int64_t>(megabytes(config.first_bucket_mb)),
                                          /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                                          /*bucket_bytes_cap_list=*/std::vector<std::int64_t>{});
  logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  std::vector<int> devices;
  if (parameters[0].is_cuda()) devices.push_back(parameters[0].device().index());
  logger->set_construction_data_and_log("Model", devices, devices.empty() ? -1 : devices[0], !buffers.empty(),
                                        /*has_sync_bn=*/false, config.static_graph);
  if (config.static_graph) {
    reducer->set_static_graph();
    logger->set_static_graph();
  }
  if (packed[0] == 1) reducer->mark_rebuilt();
  if (auto hook = compression(config.compress, group)) reducer->register_comm_hook(std::move(hook));
}

DataParallel::DataParallel(std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
                           c10::intrusive_ptr<c10d::ProcessGroup> group, const DdpConfig& config, const BucketOrder& buckets,
                           State from)
    : impl_(std::make_unique<Impl>()) {
  impl_->group = std::move(group);
  impl_->find_unused = config.find_unused_parameters && !config.static_graph;
  impl_->static_graph = config.static_graph;
  std::vector<NamedTensor> untrained = buffers;
  for (const auto& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) untrained.push_back(parameter);
  }
  std::unordered_set<const void*> seen;
  std::erase_if(parameters, [&](const NamedTensor& parameter) {
    return !parameter.tensor.requires_grad() || !seen.insert(parameter.tensor.unsafeGetTensorImpl()).second;
  });
  for (const auto& parameter : parameters) {
    impl_->names.push_back(parameter.name);
    impl_->parameters.push_back(parameter.tensor);
  }
  for (const auto& buffer : buffers) {
    if (buffer.tensor.defined()) impl_->buffers.push_back(buffer.tensor.detach());
  }
  if (!impl_->group || impl_->group->getSize() == 1) return;
  if (parameters.empty()) throw UsageError("the model has no parameter that requires a gradient: there is nothing to train");

  Agreement agreement(*impl_->group, impl_->parameters[0].device());
  verify_same_model(parameters, untrained, agreement);
  c10d::verify_params_across_processes(impl_->group, impl_->parameters, {});  // also checks memory layouts
  if (from == State::kRank0s) {
    std::vector<at::Tensor> state;
    for (const auto& parameter : impl_->parameters) state.push_back(parameter.detach());
    for (const auto& tensor : untrained) {
      if (tensor.tensor.defined()) state.push_back(tensor.tensor.detach());
    }
    take_state_of_rank0(impl_->group, state, agreement);
  }
  impl_->make_reducer(config, buckets);
}

DataParallel::~DataParallel() {
  impl_->logger.reset();
  impl_->reducer.reset();
}

void DataParallel::before_forward(bool sync) {
  if (!impl_->reducer || !sync) return;
  impl_->reducer->prepare_for_forward();
  // A no-op, except for a model whose first step had no gradients and whose buckets are therefore not rebuilt.
  impl_->reducer->rebuild_buckets();
}

// Note [A static graph learns from the micro-batch that is summed]
// In its first iteration, Reducer counts how often each gradient arrives. In later iterations it sums a gradient when it has
// arrived that often. In the first iteration, and only there, it also counts the hooks of micro-batches that are not summed.
// With three micro-batches it would wait for the third arrival of a gradient that arrives once, and never sum it.
void DataParallel::before_backward(const at::Tensor& output, bool sync) {
  if (!impl_->reducer || !sync) return;
  if (impl_->static_graph && impl_->first_step) impl_->reducer->forget_hooks();
  if (impl_->find_unused) {
    impl_->reducer->expect_gradients({output});
  } else {
    impl_->reducer->expect_gradients(impl_->no_outputs);
  }
  impl_->note_when_computed(output);
}

// Callbacks of a backward pass run at its end, in the order in which they were queued. The callback of the first gradient is
// queued here, so it runs before the Reducer's. That one is queued with the last gradient and waits for the other ranks.
void DataParallel::Impl::note_when_computed(const at::Tensor& output) {
  computed.reset();
  if (!output.is_cpu() || !output.requires_grad()) return;
  output.register_hook([this](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] { computed = std::chrono::steady_clock::now(); });
  });
}

std::chrono::nanoseconds DataParallel::take_waited() {
  return std::exchange(impl_->waited, {});
}

// Note [Buckets are rebuilt at the end of the first step]
// Python rebuilds the buckets in the next forward pass. Gloo's sums depend on an element's place in its bucket, so a checkpoint
// must store the order of the buckets. A checkpoint between the first step and the next forward pass could not store it yet.
// Rebuilt here, the order exists as soon as the step is done. A run that resumes after step 1 then continues with the same bits
// as an uninterrupted one.
void DataParallel::after_backward(bool sync) {
  Impl& impl = *impl_;
  if (!impl.reducer || !sync) return;
  if (impl.static_graph && impl.first_step) impl.reducer->delay_all_reduce();
  if (!impl.reducer->finished()) impl.report_missing();
  if (impl.first_step) {
    if (impl.static_graph) impl.reducer->assume_reverse_order();
    impl.rebuild_buckets();
    impl.first_step = false;
  }
  if (!impl.buffers.empty()) c10d::broadcast_coalesced(impl.group, impl.buffers, kBroadcastBytes);
  if (impl.computed) impl.waited += std::chrono::steady_clock::now() - *std::exchange(impl.computed, std::nullopt);
}

// Moves the gradients out of the parameters meanwhile. Gradients that are views of the old buckets would otherwise be copied
// into the new ones, although they are used only once more and then dropped. They keep the old buckets alive until then. The
// new buckets take memory when they are filled.
void DataParallel::Impl::rebuild_buckets() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (auto& parameter : parameters) gradients.push_back(std::exchange(parameter.mutable_grad(), {}));
  reducer->rebuild_buckets();
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = std::move(gradients[i]);
}

void DataParallel::Impl::report_missing() const {
  const auto missing = reducer->missing();
  std::string list;
  for (std::size_t i = 0; i < std::min(missing.size(), kNamesShown); ++i) list += (i == 0 ? "" : ", ") + names[missing[i]];
  if (missing.size() > kNamesShown) list += " and " + std::to_string(missing.size() - kNamesShown) + " more";
  const std::string advice = static_graph ? "\"static_graph\": false" : "\"find_unused_parameters\": true";
  const std::string text = "the backward pass gave " + std::to_string(missing.size()) + " of " + std::to_string(names.size()) +
                           " parameters no gradient, so the gradients are not summed over the ranks: " + list +
                           ". Use them in every step, freeze them, or set " + advice + " in \"ddp\"";
  // A missing gradient in the first step is a property of the model, and a restart would fail in the same way.
  if (first_step) throw UsageError(text);
  throw std::runtime_error(text);
}

// Note [Gradients are dropped, not zeroed]
// This also holds for gradients that are views of buckets. Autograd adds to a kept view, and the Reducer divides it by the
// world size. A new gradient is multiplied by the inverse while it is copied into the bucket. With three ranks the two results
// differ in the last bit. The first step after a resume always has new gradients, so it would differ from an uninterrupted run.
// Dropped gradients are always new (as in Python's default), which also saves a pass over memory.
void DataParallel::zero_grad() {
  for (auto& parameter : impl_->parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.defined()) gradient.reset();
  }
}

BucketOrder DataParallel::bucket_order() const {
  if (!impl_->reducer || !impl_->reducer->rebuilt()) return {};
  BucketOrder order;
  for (const auto& bucket : impl_->logger->get_per_bucket_variable_indices()) order.emplace_back(bucket.begin(), bucket.end());
  return order;
}

}  // namespace ddprun::trainer
