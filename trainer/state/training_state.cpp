#include "trainer/state/training_state.hpp"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/isfinite.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "trainer/models/low_rank.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/models/seeded_generator.hpp"
#include "trainer/optim/name_patterns.hpp"
#include "trainer/optim/tensor_fit.hpp"
#include "trainer/parallel/device.hpp"
#include "trainer/state/evaluation_rules.hpp"
#include "trainer/state/fitted_weights.hpp"
#include "trainer/state/initial_weights.hpp"
#include "trainer/state/skipped_steps.hpp"

namespace ddprun::trainer {
namespace {

// The tensors of the model that may be missing in a file of weights: no tensors, all low-rank updates, or all low-rank updates
// and any buffers.
enum class AllowMissing { kNothing, kUpdates, kUpdatesAndBuffers };

bool same_values(const at::Tensor& one, const at::Tensor& other) {
  if (one.equal(other.to(one.scalar_type()))) return true;
  // equal() is always false if a tensor contains a NaN, so the bytes are compared too.
  return one.scalar_type() == other.scalar_type() && one.sizes() == other.sizes() && one.is_contiguous() &&
         other.is_contiguous() && std::memcmp(one.const_data_ptr(), other.const_data_ptr(), one.nbytes()) == 0;
}

// Returns each saved tensor once, under the first name that it has in the model. A tied tensor has several names in the model.
// A file that Python wrote may contain a tied tensor under all of these names, or only under a later name. Throws UsageError if
// the values under these names differ.
std::vector<NamedTensor> with_first_names(const std::map<std::string, std::string>& tied, const std::vector<NamedTensor>& saved,
                                          const std::string& source) {
  std::vector<NamedTensor> once;
  std::unordered_map<std::string_view, const NamedTensor*> first;
  for (const NamedTensor& entry : saved) {
    if (tied.contains(entry.name)) continue;
    once.push_back(entry);
    first.emplace(entry.name, &entry);
  }
  for (const NamedTensor& entry : saved) {
    const auto other = tied.find(entry.name);
    if (other == tied.end()) continue;
    const auto [found, is_new] = first.emplace(other->second, &entry);
    if (is_new) {
      once.push_back({other->second, entry.tensor});
    } else if (!same_values(found->second->tensor, entry.tensor)) {
      throw UsageError(source + " does not match the model of the config: its tensors " + entry.name + " and " +
                       found->second->name + " differ, but the model has one tensor for both");
    }
  }
  return once;
}

// Returns true for batch norm's counter of batches. PyTorch creates the counter, but no result depends on it, so a file may
// lack it.
bool is_counter(const std::string& buffer) {
  return buffer.ends_with("num_batches_tracked");
}

// Copies saved tensors into the model's tensors of the same name. If a tensor does not fit, throws UsageError before any tensor
// is copied. Returns the names of the model's tensors that are not in `saved`.
std::vector<std::string> copy_weights(const TrainingState& state, const std::vector<NamedTensor>& saved,
                                      const std::string& source, AllowMissing allow_missing) {
  const std::vector<NamedTensor> counted = with_first_names(state.tied, saved, source);
  const auto found = by_name(counted);
  const bool has_updates = std::ranges::any_of(saved, [](const NamedTensor& entry) { return is_lora_parameter(entry.name); });
  std::vector<NamedTensor> needed;
  std::vector<std::string> absent;
  for (StateTensor& one : state_map(state)) {
    using Role = StateTensor::Role;
    if (one.role != Role::kParameter && one.role != Role::kBuffer) continue;
    const bool optional = one.role == Role::kBuffer
                              ? allow_missing == AllowMissing::kUpdatesAndBuffers || is_counter(one.entry.name)
                              : is_lora_parameter(one.entry.name) && !has_updates;
    if (allow_missing != AllowMissing::kNothing && optional && !found.contains(one.entry.name)) {
      absent.push_back(one.entry.name);
    } else {
      needed.push_back(std::move(one.entry));
    }
  }
  if (const std::string problem = misfit(needed, counted); !problem.empty()) {
    throw UsageError(source + " does not match the model of the config: " + problem);
  }
  copy_by_name(needed, counted);
  return absent;
}

// Freezes the parameters that model.freeze selects. They are not trained and keep their initial or loaded values.
void freeze(torch::nn::Module& model, const std::vector<std::string>& patterns) {
  if (patterns.empty()) return;
  const auto parameters = model.named_parameters();  // contains a tied parameter under each of its names
  const auto frozen_by = first_matches("model.freeze", patterns, parameters.keys(), /*tied=*/{});
  for (std::size_t i = 0; i < frozen_by.size(); ++i) {
    if (frozen_by[i]) parameters[i].value().set_requires_grad(false);
  }
  if (std::ranges::none_of(model.parameters(), [](const at::Tensor& parameter) { return parameter.requires_grad(); })) {
    throw UsageError("model.freeze leaves no parameter to train");
  }
}

// Only the built-in models implement low-rank updates. The module of a custom task ignores model.lora, so without this check
// all of its parameters would be trained without an error.
void require_updates(torch::nn::Module& model, const LoraConfig& config) {
  if (config.rank == 0 || std::ranges::any_of(model.named_parameters().keys(), is_lora_parameter)) return;
  throw UsageError("model.lora: only the built-in models have low-rank updates; expected model.lora.rank 0, found " +
                   std::to_string(config.rank));
}

// Copies the saved average of the weights. If none was saved, the average is not changed, and averaging starts from scratch.
void copy_average(const TrainingState& state, const std::vector<NamedTensor>& saved, const std::string& source) {
  if (!state.average || saved.empty()) return;
  if (const std::string problem = misfit(state.average->tensors(), saved); !problem.empty()) {
    throw UsageError("the average in " + source + " does not match the model of the config: " + problem);
  }
  copy_by_name(state.average->tensors(), saved);
}

// Reads weights for the model. Weights of a language model may come from another program, with different names and a longer
// table of positions.
std::vector<NamedTensor> weights_for(const TrainingState& state, const std::filesystem::path& source,
                                     const TrainConfig& config) {
  std::vector<NamedTensor> weights = initial_weights(source);
  if (!config.model.is_language_model()) return weights;
  std::set<std::string> names;
  for (const auto* list : {&state.parameters, &state.buffers}) {
    for (const NamedTensor& entry : *list) names.insert(entry.name);
  }
  for (const auto& [name, first] : state.tied) names.insert(name);
  return with_positions(with_names(names, std::move(weights)), config, source);
}

void initialise(TrainingState& state, const TrainConfig& config) {
  const std::filesystem::path source = config.model.init;
  try {
    const std::string on_model = compare_model(source, config);
    const std::vector<NamedTensor> weights = weights_for(state, source, config);
    const std::vector<std::string> absent = copy_weights(state, weights, source, AllowMissing::kUpdatesAndBuffers);
    const std::string on_alpha = compare_alpha(weights, source, config.model.lora);
    const std::string on_held_out = compare_held_out(source, config);
    state.taken =
        "model.init: " + std::to_string(weights.size()) + " tensors come from " + source.string() +
        (absent.empty() ? ""
                        : "; these tensors are missing in it and are initialized as in a new model: " + names_text(absent));
    for (const std::string& note : {on_model, on_alpha, on_held_out}) state.taken += note.empty() ? "" : "; " + note;
  } catch (const OtherModelError& problem) {
    throw OtherModelError("model.init: " + std::string(problem.what()));
  } catch (const UsageError& problem) {
    throw UsageError("model.init: " + std::string(problem.what()));
  }
}

// The seed determines the order of samples within an epoch, and which samples are held out. With a different seed, the rest of
// the epoch would repeat some samples and miss others. The held-out samples would include samples that were trained on.
void refuse_other_seed(const CheckpointState& saved, const TrainConfig& config, const std::filesystem::path& source) {
  if (saved.seed == config.seed) return;
  const bool within = saved.position != 0;
  if (!within && !config.data.validation.is_set()) return;
  throw UsageError(source.string() + " was trained with seed " + std::to_string(saved.seed) + ", but this config has seed " +
                   std::to_string(config.seed) + ": " +
                   (within ? "the checkpoint is from the middle of an epoch, and in another order some samples would be used "
                             "twice and others never"
                           : "with this seed, data.validation holds out samples that were already used for training") +
                   ". Set seed to " + std::to_string(saved.seed) +
                   ". To start a new run from these weights, set model.init to the checkpoint");
}

std::shared_ptr<torch::nn::Module> seeded_module(const Task& task, const Description& samples, std::uint64_t seed,
                                                 c10::Device device) {
  // Seed both generators, because the program's make_module() may draw from either.
  const SeededGenerator seeded_host(c10::kCPU, seed), seeded_device(device, seed);
  return task.make_module(samples, device);
}

c10::Device device_of(const TrainingState& state) {
  return state.parameters.empty() ? c10::Device(c10::kCPU) : state.parameters.front().tensor.device();
}

}  // namespace

std::vector<NamedTensor> trained_parameters(const TrainingState& state) {
  std::vector<NamedTensor> trained;
  for (const NamedTensor& parameter : state.parameters) {
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  }
  return trained;
}

// Adds each parameter once, under its first name. LibTorch's named_parameters() lists a tied parameter under each of its names,
// and the optimizer would then update it once per name.
TrainingState state_of(std::shared_ptr<torch::nn::Module> model) {
  TrainingState state;
  state.model = std::move(model);
  std::unordered_map<const c10::TensorImpl*, std::string> first_names;
  for (const auto& item : state.model->named_parameters()) {
    const auto [first, is_new] = first_names.emplace(item.value().unsafeGetTensorImpl(), item.key());
    if (is_new) {
      state.parameters.push_back({item.key(), item.value()});
    } else {
      state.tied.emplace(item.key(), first->second);
    }
  }
  for (const auto& item : state.model->named_buffers()) state.buffers.push_back({item.key(), item.value()});
  return state;
}

TrainingState state_around(std::shared_ptr<torch::nn::Module> model, const OptimizerConfig& config) {
  TrainingState state = state_of(std::move(model));
  state.optimizer = make_optimizer(config, trained_parameters(state), state.tied);
  if (config.ema.decay > 0) state.average.emplace(config.ema.decay, trained_parameters(state));
  return state;
}

void take_weights(const std::shared_ptr<torch::nn::Module>& model, const std::filesystem::path& source,
                  const TrainConfig& config) {
  // SGD without momentum is used here, because this optimizer has no state.
  const TrainingState state = state_around(model, {.type = OptimizerConfig::Type::kSgd});
  compare_model(source, config);
  const std::vector<NamedTensor> weights = weights_for(state, source, config);
  copy_weights(state, weights, source, AllowMissing::kUpdates);
  compare_alpha(weights, source, config.model.lora);
}

StateMap state_map(const TrainingState& state) {
  using Role = StateTensor::Role;
  StateMap map;
  const auto add = [&map](Role role, const std::vector<NamedTensor>& entries) {
    for (const NamedTensor& entry : entries) map.push_back({role, {entry.name, entry.tensor.detach()}});
  };
  add(Role::kParameter, state.parameters);
  add(Role::kBuffer, state.buffers);
  add(Role::kOptimizer, state.optimizer->state());
  if (state.average) add(Role::kAverage, state.average->tensors());
  return map;
}

void require_same_module(const Task& task, const Description& samples, std::uint64_t seed, c10::Device device) {
  const auto first = seeded_module(task, samples, seed, device), second = seeded_module(task, samples, seed, device);
  const auto compare = [](const auto& one, const auto& other, const char* what) {
    for (const auto& item : one) {
      const at::Tensor* const found = other.find(item.key());
      if (found != nullptr && found->sizes() == item.value().sizes() && found->scalar_type() == item.value().scalar_type() &&
          same_values(*found, item.value())) {
        continue;
      }
      throw UsageError(
          std::string("make_module() is not deterministic: a second call with the same seed returned a different ") + what +
          " '" + item.key() +
          "', so workers that start later would have other weights. Draw from PyTorch's default generator, which is seeded "
          "with `seed` before make_module(), or from a generator that you seed with it");
    }
  };
  const at::NoGradGuard no_gradients;
  compare(first->named_parameters(), second->named_parameters(), "parameter");
  compare(first->named_buffers(), second->named_buffers(), "buffer");
}

TrainingState new_training_state(const Task& task, const Description& samples, const TrainConfig& config, c10::Device device) {
  const std::shared_ptr<torch::nn::Module> model = seeded_module(task, samples, config.seed, device);
  require_updates(*model, config.model.lora);
  freeze(*model, config.model.freeze);
  lay_out(*model, config.channels_last);
  TrainingState state = state_around(model, config.optimizer);
  if (CudaModule* const cuda = cuda_module(); cuda && device.is_cuda()) state.device = cuda->device_name(device.index());
  if (!config.model.init.empty()) initialise(state, config);
  init_values(state.values, config, /*saved=*/{});
  return state;
}

void restore(TrainingState& state, const CheckpointState& saved, const TrainConfig& config, const RunLength& length,
             const std::filesystem::path& source) {
  if (saved.epoch != length.epoch_of(saved.step) || saved.position != length.position_of(saved.step)) {
    throw UsageError(
        source.string() + " was written at sample " + std::to_string(saved.position) + " of epoch " +
        std::to_string(saved.epoch) + " after " + std::to_string(saved.step) + " steps, but this config has batch_size " +
        std::to_string(length.batch_size) + " and " + std::to_string(length.samples_per_epoch) +
        " training samples, so that step is at another position in the data; resume with the batch_size and data of that run");
  }
  refuse_other_seed(saved, config, source);
  take_tensors(state, saved, source);
  init_values(state.values, config, saved.values);
}

void take_tensors(TrainingState& state, const CheckpointState& saved, const std::filesystem::path& source) {
  copy_weights(state, saved.model, source.string(), AllowMissing::kNothing);
  copy_average(state, saved.average, source.string());
  state.optimizer->load_state(saved.optimizer);
  state.step = saved.step;
  state.started_from = saved.step;
  state.bucket_order = saved.bucket_order;
}

void begin_step(TrainingState& state) {
  const at::NoGradGuard no_gradients;
  state.stage = TrainingState::Stage::kExchanging;
  if ((!state.can_undo && !skips_steps(state.values)) || state.buffers.empty()) return;
  std::vector<at::Tensor> now;
  for (const NamedTensor& buffer : state.buffers) now.push_back(buffer.tensor.detach());
  if (state.buffers_before.size() == now.size()) {
    at::_foreach_copy_(state.buffers_before, now);  // runs one GPU kernel for all buffers
    return;
  }
  state.buffers_before.clear();
  for (const at::Tensor& buffer : now) state.buffers_before.push_back(buffer.clone());
}

void begin_update(TrainingState& state) {
  state.stage = TrainingState::Stage::kUpdating;
}

void update_weights(TrainingState& state, double lr) {
  state.optimizer->step(lr);
  if (!state.average) return;
  double& updates = state.values[kUpdatesOfAverage];
  state.average->update(/*first=*/updates == 0);
  ++updates;
}

void end_step(TrainingState& state) {
  ++state.step;
  state.stage = TrainingState::Stage::kBetweenSteps;
}

void restore_buffers(TrainingState& state) {
  const at::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < state.buffers_before.size(); ++i) state.buffers[i].tensor.detach().copy_(state.buffers_before[i]);
}

bool undo_step(TrainingState& state) {
  using Stage = TrainingState::Stage;
  if (state.model) state.model->train();  // a failed evaluation has left the model in evaluation mode
  const Stage stage = std::exchange(state.stage, Stage::kBetweenSteps);
  if (stage != Stage::kExchanging) return stage == Stage::kBetweenSteps;
  if (state.buffers_before.size() != state.buffers.size()) return false;
  restore_buffers(state);
  return true;
}

CheckpointState saved_tensors(const TrainingState& state) {
  CheckpointState saved;
  saved.step = state.step;
  saved.world_size = state.world;
  saved.intra_op_threads = at::get_num_threads();
  saved.cpu_class = at::get_cpu_capability();
  saved.torch_version = TORCH_VERSION;
  saved.device = state.device;
  saved.summation = state.summation;
  saved.run = state.run.id;
  saved.earlier = state.run.earlier;
  saved.bucket_order = state.bucket_order;
  saved.tied = state.tied;
  saved.values = state.values;
  for (StateTensor& tensor : state_map(state)) {
    using Role = StateTensor::Role;
    auto& list = tensor.role == Role::kOptimizer ? saved.optimizer
                 : tensor.role == Role::kAverage ? saved.average
                                                 : saved.model;
    list.push_back(std::move(tensor.entry));
  }
  return saved;
}

CheckpointState checkpoint_of(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                              const BucketOrder& bucket_order, int world) {
  CheckpointState saved = saved_tensors(state);
  saved.epoch = length.epoch_of(state.step);
  saved.position = length.position_of(state.step);
  saved.samples = length.samples_after(state.step);
  saved.finished = is_over(state, config, length) && !evaluation_is_missing(state.values);
  saved.total_steps = length.total_steps;
  saved.config_epochs = config.epochs;
  saved.config_max_steps = config.max_steps;
  saved.world_size = world;
  saved.micro_batch_size = config.micro_batch_size;
  saved.precision = precision_text(config, device_of(state));
  saved.seed = config.seed;
  saved.config_digest = config_digest(config);
  saved.bucket_order = bucket_order;
  return saved;
}

std::string rounding_differences(const CheckpointState& saved, const TrainingState& state, const TrainConfig& config,
                                 int world) {
  std::string text;
  const auto note = [&](const std::string& what, const std::string& now, const std::string& before) {
    if (now != before) text += (text.empty() ? "" : ", ") + what + now + " instead of " + before;
  };
  note("workers: ", std::to_string(world), std::to_string(saved.world_size));
  note("micro_batch_size: ", std::to_string(config.micro_batch_size), std::to_string(saved.micro_batch_size));
  note("threads per worker: ", std::to_string(at::get_num_threads()), std::to_string(saved.intra_op_threads));
  note("CPU class: ", at::get_cpu_capability(), saved.cpu_class);
  note("LibTorch: ", TORCH_VERSION, saved.torch_version);
  // With at most two ranks, the order of the additions does not matter, because a + b equals b + a.
  constexpr int kMaxWithOneOrder = 2;
  if (std::max(world, saved.world_size) > kMaxWithOneOrder) {
    const auto order = [](const std::string& summation) { return summation.empty() ? "of Gloo or NCCL" : "of ranks"; };
    note("order of sums: ", order(state.summation), order(saved.summation));
  }
  if (!saved.device.empty()) note("device: ", state.device, saved.device);
  if (!saved.precision.empty()) note("precision: ", precision_text(config, device_of(state)), saved.precision);
  return text;
}

bool all_finite(const TrainingState& state) {
  const at::NoGradGuard no_gradients;
  return std::ranges::all_of(state_map(state), [](const StateTensor& one) {
    const at::Tensor& tensor = one.entry.tensor;
    // If the sum is not finite, each element is checked, because a sum of finite elements may overflow.
    return !tensor.is_floating_point() || at::isfinite(tensor.sum()).item<bool>() || at::isfinite(tensor).all().item<bool>();
  });
}

}  // namespace ddprun::trainer
