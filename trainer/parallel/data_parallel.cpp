// Implementation of data_parallel.hpp. The order of calls is the same as in Python's DistributedDataParallel, with three
// differences:
//
//  - Buckets are rebuilt at the end of the first step, and not at the start of the second one (see the note below).
//  - Gradients are always removed between steps, even if they are views of buckets (see the note below).
//  - Buffers are broadcast after the backward pass, and not before the forward pass. So all ranks have the same buffers between
//    steps, where the state is saved.
#include "trainer/parallel/data_parallel.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/optim/name_patterns.hpp"
#include "trainer/parallel/compression.hpp"
#include "trainer/parallel/equal_start.hpp"
#include "trainer/parallel/peers.hpp"
#include "trainer/parallel/shared/shared_backend.hpp"
#include "trainer/parallel/torch_version.hpp"

namespace ddprun::trainer {
namespace {

using Buckets = std::vector<std::vector<std::size_t>>;
using nlohmann::json;

constexpr std::size_t kBroadcastBytes = 250u << 20;  // maximum size of a coalesced broadcast, as in Python

// c10d's Reducer with access to some of its protected members: whether a backward pass has finished, which parameters have no
// gradient yet, and whether the buckets are already rebuilt.
class OpenReducer final : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  // Prepares the Reducer for a backward pass. The Reducer records in backward_stats_ when each gradient is ready. All entries
  // are first set to -1, so that missing() can find gradients that were never ready.
  void expect_gradients(const std::vector<at::Tensor>& outputs) {
    std::fill(backward_stats_.begin(), backward_stats_.end(), -1);
    prepare_for_backward(outputs);
  }
  // Resets the counts of gradient hooks from earlier micro-batches. See the note [A static graph counts the hooks of one
  // micro-batch].
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
  // In the first step of a static graph, the Reducer does not record the order in which gradients are ready. But it needs an
  // order to rebuild the buckets. This function sets the reverse of the order in which the parameters are defined.
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

// Returns the first assignment of parameters to buckets, as Python's wrapper makes it. If the buckets will be rebuilt after the
// first step, there is a single bucket. Otherwise the buckets are limited by size and in reverse order, because gradients
// become ready in about the reverse of the order in which parameters are defined.
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
            "the gradient order in the checkpoint contains parameter " + std::to_string(index) +
            (index >= 0 && at < parameters ? " twice" : ", but the model has " + std::to_string(parameters) + " parameters") +
            ". The checkpoint belongs to another model or is damaged: resume from another checkpoint");
      }
      seen[at] = true;
      ++count;
    }
    if (bucket.empty())
      throw BadCheckpointError("the gradient order in the checkpoint contains an empty bucket: resume from another checkpoint");
  }
  if (count != parameters) {
    throw BadCheckpointError("the gradient order in the checkpoint contains " + std::to_string(count) +
                             " parameters, but the model has " + std::to_string(parameters) +
                             ". The checkpoint belongs to another model or is damaged: resume from another checkpoint");
  }
}

// Returns the assignment of parameters to buckets that this rank would use. `saved` is not checked.
std::string assignment_text(const std::vector<at::Tensor>& parameters, const DdpConfig& config, const BucketOrder& saved) {
  if (!saved.empty()) return json{{"rebuilt", true}, {"buckets", saved}}.dump();
  return json{{"rebuilt", false}, {"buckets", first_buckets(parameters, config)}}.dump();
}

}  // namespace

struct DataParallel::Impl {
  void make_reducer(const DdpConfig& config, const std::string& assignment);
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
  // Time at which this rank had computed all gradients of the current backward pass.
  std::optional<std::chrono::steady_clock::time_point> computed;
  std::chrono::nanoseconds waited{};
  // Set if collectives run in the calling thread, so that they are part of the backward pass.
  SharedBackend* shared = nullptr;
  std::chrono::nanoseconds spent_before{};  // shared->spent() before the backward pass
  const std::vector<at::Tensor> no_outputs;
  // `reducer` and `logger` are null if there is only one rank. The Logger refers to the Reducer, so the Logger must be
  // destroyed first. The Reducer needs a Logger: if find_unused_parameters is set and there is no Logger, the Reducer crashes.
  std::shared_ptr<OpenReducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
};

// `assignment` is the text of assignment_text() of rank 0.
void DataParallel::Impl::make_reducer(const DdpConfig& config, const std::string& assignment) {
  const json of_rank_0 = json::parse(assignment);
  std::unordered_map<std::size_t, std::string> names_by_index;
  for (std::size_t i = 0; i < names.size(); ++i) names_by_index[i] = names[i];
  const bool rebuilt = of_rank_0.at("rebuilt").get<bool>();
  // The buckets of the first step use ordinary memory: rebuild_buckets() allocates the next buckets before it frees them, and
  // the shared memory has space for one set of buckets.
  if (shared != nullptr) shared->share_buffers(rebuilt || find_unused);
  reducer = std::make_shared<OpenReducer>(
      parameters, of_rank_0.at("buckets").get<Buckets>(), group, std::vector<bool>(parameters.size(), false),
      static_cast<std::int64_t>(megabytes(config.bucket_mb)), config.find_unused_parameters, config.gradient_as_bucket_view,
      std::move(names_by_index), static_cast<std::int64_t>(megabytes(config.first_bucket_mb)),
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
  if (rebuilt) reducer->mark_rebuilt();
  if (auto hook = compression(config.compress, group)) reducer->register_comm_hook(std::move(hook));
}

// The result includes one cache line for each parameter, because each bucket begins at a cache line, and there are at most as
// many buckets as parameters.
std::uint64_t bucket_memory(const std::vector<NamedTensor>& trained) {
  constexpr std::uint64_t kLine = 64;
  std::uint64_t bytes = 0;
  for (const NamedTensor& parameter : trained) bytes += parameter.tensor.nbytes() + kLine;
  return bytes;
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

  impl_->shared = shared_backend_of(*impl_->group);
  const Peers peers(impl_->group, impl_->group->getRank(), impl_->group->getSize(), impl_->parameters[0].device());
  std::vector<at::Tensor> state;
  if (from == State::kFromRank0) {
    for (const auto& parameter : impl_->parameters) state.push_back(parameter.detach());
    for (const auto& tensor : untrained) {
      if (tensor.tensor.defined()) state.push_back(tensor.tensor.detach());
    }
  }
  const std::string model = describe_model(parameters, untrained);
  std::string assignment = assignment_text(impl_->parameters, config, buckets);
  const EqualOnAllRanks equal = compare_with_others(model, assignment, state, peers);
  if (!equal.model) throw_other_model(model, peers);
  const bool uses_own_order = equal.buckets || peers.rank() == 0;
  if (uses_own_order && !buckets.empty()) check_order(buckets, impl_->parameters.size());
  if (!equal.state) c10d::broadcast_coalesced(impl_->group, state, kBroadcastBytes);
  // All ranks use the buckets of rank 0. A replacement rank has no saved buckets, and would otherwise assign parameters to
  // different buckets (docs/internals/decisions/parallel/bucket-order.md).
  if (!equal.buckets) assignment = peers.from_rank_0(assignment);
  impl_->make_reducer(config, assignment);
}

DataParallel::~DataParallel() {
  impl_->logger.reset();
  impl_->reducer.reset();
}

void DataParallel::before_forward(bool sync) {
  if (!impl_->reducer || !sync) return;
  impl_->reducer->prepare_for_forward();
  // This usually does nothing, since after_backward() has rebuilt the buckets in the first step. But if the first step had no
  // gradients, the buckets are rebuilt here, as in Python's wrapper.
  impl_->reducer->rebuild_buckets();
}

// Note [A static graph counts the hooks of one micro-batch]
// With a static graph, the Reducer counts in its first iteration how often the hook of each gradient runs. In later iterations,
// it all-reduces a gradient after that number of hooks. But in the first iteration it also counts the hooks of micro-batches
// without sync. With three micro-batches, it would count three hooks, and then wait for three hooks in later iterations, where
// only one hook runs. The gradient would never be all-reduced. So the counts are reset before the micro-batch with sync.
void DataParallel::before_backward(const at::Tensor& output, bool sync) {
  if (!impl_->reducer || !sync) return;
  if (impl_->shared != nullptr) impl_->spent_before = impl_->shared->spent();
  if (impl_->static_graph && impl_->first_step) impl_->reducer->forget_hooks();
  if (impl_->find_unused) {
    impl_->reducer->expect_gradients({output});
  } else {
    impl_->reducer->expect_gradients(impl_->no_outputs);
  }
  impl_->note_when_computed(output);
}

// Records the time at which this rank has computed its gradients. Autograd runs callbacks at the end of a backward pass, in the
// order in which they were queued. This function queues its callback at the first gradient. The Reducer's callback waits for
// the other ranks, and is queued at the last gradient. So the time is recorded before that wait.
void DataParallel::Impl::note_when_computed(const at::Tensor& output) {
  computed.reset();
  if (shared != nullptr || !output.is_cpu() || !output.requires_grad()) return;
  output.register_hook([this](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] { computed = std::chrono::steady_clock::now(); });
  });
}

std::chrono::nanoseconds DataParallel::take_waited() {
  return std::exchange(impl_->waited, {});
}

// Note [Buckets are rebuilt at the end of the first step] In Gloo, the position of an element in its bucket determines the
// order of the additions, and so the rounding. For a bit-identical resume, a checkpoint must therefore contain the buckets.
// Python rebuilds the buckets in the second forward pass, so a checkpoint after step 1 could not contain the rebuilt buckets.
// Here the buckets are rebuilt at the end of step 1. A run that resumes after step 1 then computes the same bits as an
// uninterrupted run.
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
  if (impl.shared != nullptr) impl.waited += impl.shared->spent() - impl.spent_before;
}

// Rebuilds the buckets. The gradients are first moved out of the parameters. Otherwise the Reducer would copy gradients that
// are views of the old buckets into the new buckets. The copy is not needed, because the optimizer uses these gradients only
// once. While the gradients exist, they keep the memory of the old buckets allocated.
void DataParallel::Impl::rebuild_buckets() {
  const at::NoGradGuard no_grad;
  if (shared != nullptr) shared->share_buffers(true);
  std::vector<at::Tensor> gradients;
  for (auto& parameter : parameters) gradients.push_back(std::exchange(parameter.mutable_grad(), {}));
  reducer->rebuild_buckets();
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = std::move(gradients[i]);
}

void DataParallel::Impl::report_missing() const {
  const auto missing = reducer->missing();
  std::vector<std::string> missing_names;
  for (const std::size_t index : missing) missing_names.push_back(names[index]);
  const std::string advice = static_graph ? "\"static_graph\": false" : "\"find_unused_parameters\": true";
  const std::string text =
      std::to_string(missing.size()) + " of " + std::to_string(names.size()) +
      " parameters received no gradient in the backward pass, so the gradients are not summed over the ranks: " +
      names_text(missing_names) + ". Use these parameters in every step, freeze them, or set " + advice + " in \"ddp\"";
  // A gradient that is missing in the first step is a property of the model, so a restart would fail in the same way.
  if (first_step) throw UsageError(text);
  throw std::runtime_error(text);
}

// Note [Gradients are removed, not set to zero] The Reducer handles kept and new gradients differently. If a gradient is a kept
// view of a bucket, autograd adds to it, and the Reducer divides it by the world size. A new gradient is multiplied by the
// inverse of the world size while it is copied into the bucket. With three ranks, the two results differ in the last bit.
//
// The first step after a resume always has new gradients. If an uninterrupted run kept its gradients, the resumed run would
// differ from it in this step. So gradients are removed after each step, and every step has new gradients, as in Python by
// default. This also saves one pass over the memory.
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
