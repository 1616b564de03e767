// The state that must survive a restart: the weights, the buffers, the optimizer's state and the number of finished steps. The
// position in the data and all random numbers are computed from the number of steps (trainer/data/run_length.hpp,
// trainer/loop/seeds.hpp). Everything that can be rebuilt is in trainer/loop/workspace.hpp.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/data/run_length.hpp"
#include "trainer/metrics/evaluation.hpp"
#include "trainer/optim/optimizer.hpp"
#include "trainer/optim/weight_average.hpp"
#include "trainer/parallel/data_parallel.hpp"
#include "trainer/state/run_identity.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// Metrics of the last logged step. StepEvaluation has the metrics of the last evaluation. Every rank keeps a copy, because
// rank 0, which writes the metrics files, may be lost before it has written them.
struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0;  // mean training loss over the global batch
  double lr = 0;
  double gradient_norm = 0;              // norm of the gradients before clipping; may be infinite
  std::int64_t peak_memory = 0;          // peak memory of rank 0, in bytes; on a GPU only the memory of tensors
  std::int64_t largest_peak_memory = 0;  // largest peak memory of any rank, in bytes
  // Number of steps skipped since the start of the run; nullopt if no step can be skipped.
  std::optional<std::int64_t> skipped{};
};
struct StepEvaluation {
  std::int64_t step = 0;
  Evaluation result{};
};

struct TrainingState {
  std::shared_ptr<torch::nn::Module> model;
  // These tensors share the model's memory. A tied parameter is listed once, under its first name.
  std::vector<NamedTensor> parameters;
  std::map<std::string, std::string> tied;  // maps each additional name of a tied parameter to its first name
  std::vector<NamedTensor> buffers;
  std::unique_ptr<Optimizer> optimizer;
  std::optional<WeightAverage> average;  // set if optimizer.ema is configured
  StateValues values;                    // exactly the values that the config needs (see init_values())
  std::int64_t step = 0;                 // number of finished steps
  BucketOrder bucket_order;              // gradient buckets for the next step; empty before the first step
  std::int64_t started_from = 0;         // number of finished steps when the run started or resumed
  int world = 0;                         // number of ranks since step `world_since`; 0 before the first step
  std::int64_t world_since = 0;
  RunIdentity run;
  std::optional<StepMetrics> figures;
  std::optional<StepEvaluation> evaluation;

  std::string taken;  // message about the weights loaded from model.init; empty if model.init is not set

  std::string device = "cpu";  // "cpu", or the name of the GPU that holds the state
  // order of the additions in sums over the ranks of the current group (CheckpointState::summation)
  std::string summation;

  // A forward pass changes the buffers, for example batch norm's running means. So begin_step() copies the buffers if the step
  // might be undone. A step is undone if it is skipped, or if it fails in a group that can survive the loss of a rank
  // (`can_undo`).
  bool can_undo = true;
  enum class Stage { kBetweenSteps, kExchanging, kUpdating } stage = Stage::kBetweenSteps;
  std::vector<at::Tensor> buffers_before;
};

// A tensor of the training state, with its role. Saving, loading, sending, comparing and the check for NaN all use the list
// from state_map(), so a new kind of tensor must be added only to that list. The role selects the file in a checkpoint.
struct StateTensor {
  enum class Role { kParameter, kBuffer, kOptimizer, kAverage };
  Role role = Role::kParameter;
  NamedTensor entry;  // shares memory with the state's tensor, but is detached from autograd
};
using StateMap = std::vector<StateTensor>;

// Returns all tensors of the state, in the same order on every rank.
StateMap state_map(const TrainingState& state);

// A step has two parts. After begin_step(), ranks exchange gradients, and only the buffers change. After begin_update(), the
// weights and moments change, and no exchange follows. So a lost rank can fail a step only in the first part, and undo_step()
// then needs to restore only the buffers.
void begin_step(TrainingState& state);
void begin_update(TrainingState& state);
// Runs the optimizer with this learning rate and updates the average of the weights. Call this between begin_update() and
// end_step(), unless the step is skipped (trainer/loop/skipping.hpp).
void update_weights(TrainingState& state, double lr);
// Restores the buffers that begin_step() copied. Does nothing if begin_step() made no copy.
void restore_buffers(TrainingState& state);
void end_step(TrainingState& state);
// Undoes the current step. The state is then again the state after state.step finished steps. Returns false if this is
// impossible, because the update of the weights was interrupted or the buffers were not copied.
bool undo_step(TrainingState& state);

// Returns the parameters that are trained. A frozen parameter (requires_grad is false) is saved, but neither updated nor
// clipped.
std::vector<NamedTensor> trained_parameters(const TrainingState& state);

// Returns a state with the parameters and buffers of `model`, without an optimizer.
TrainingState state_of(std::shared_ptr<torch::nn::Module> model);

// Returns a state with the parameters and buffers of `model`, and with an optimizer for its trained parameters.
TrainingState state_around(std::shared_ptr<torch::nn::Module> model, const OptimizerConfig& config);

// Loads weights into a model that is not trained, for evaluation or inference. `source` is a safetensors file or a
// checkpoint's folder. If a checkpoint has averaged weights, the averaged weights are used. A config.json next to the weights
// is compared with `config` (initial_weights.hpp). Low-rank updates may be absent: they then keep their initial values, which
// do not change the model's results. An absent buffer is an error, because its initial value would be used as if it had been
// trained. Throws UsageError if the weights do not fit.
void take_weights(const std::shared_ptr<torch::nn::Module>& model, const std::filesystem::path& source,
                  const TrainConfig& config);

// Checks that a program's make_module() returns the same weights for the same seed. make_module() is called twice, and
// PyTorch's default generators are seeded before each call. Throws UsageError, which names the first parameter or buffer that
// differs. If the weights depended on the process, a replacement worker would have different initial weights than the other
// ranks.
void require_same_module(const Task& task, const Description& samples, std::uint64_t seed, c10::Device device);

// Returns the state of a new run, with weights from the config's seed or from model.init. Throws UsageError if the weights from
// model.init do not fit the model.
TrainingState new_training_state(const Task& task, const Description& samples, const TrainConfig& config, c10::Device device);

// Replaces the state by the state in a checkpoint. If the config has an average or a plateau schedule that the checkpoint
// lacks, this average or schedule starts from scratch. Throws a UsageError that names `source` if the checkpoint has a
// different model, optimizer, seed or data position.
void restore(TrainingState& state, const CheckpointState& saved, const TrainConfig& config, const RunLength& length,
             const std::filesystem::path& source);

// Does the part of restore() that needs no config: copies the tensors, the step and the bucket order. Throws a UsageError that
// names `source`.
void take_tensors(TrainingState& state, const CheckpointState& saved, const std::filesystem::path& source);

// Returns the content of a checkpoint, without the entries that come from the config.
CheckpointState saved_tensors(const TrainingState& state);

// Returns the content of a checkpoint. `bucket_order` is the current assignment of parameters to gradient buckets.
CheckpointState checkpoint_of(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                              const BucketOrder& bucket_order, int world);

// Returns the reasons why a resumed run is not bit-identical to an uninterrupted run, for example "workers: 3 instead of 2".
// The results then differ by rounding (docs/internals/decisions/parallel/bitwise.md). Returns an empty string if the runs are
// bit-identical.
std::string rounding_differences(const CheckpointState& saved, const TrainingState& state, const TrainConfig& config,
                                 int world);

// The key in StateValues for the number of updates of the weight average.
inline constexpr const char* kUpdatesOfAverage = "average.updates";

// Returns true if no tensor of the state contains a NaN or an infinite number.
bool all_finite(const TrainingState& state);

}  // namespace ddprun::trainer
