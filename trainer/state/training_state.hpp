// The state that must survive a restart: the weights, the optimizer's state and the number of finished steps. The position in
// the data and every random number follow from that number (trainer/data/run_length.hpp, trainer/loop/seeds.hpp). Everything
// that can be rebuilt is in trainer/loop/workspace.hpp.
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

// Results of the newest logged step and of the newest evaluation. Every rank keeps them. Rank 0 may be lost after the others
// know them and before it has written them.
struct StepFigures {
  std::int64_t step = 0;
  double loss = 0;  // mean over the global batch
  double lr = 0;
  double gradient_norm = 0;               // before clipping; may be infinite
  std::int64_t peak_memory = 0;           // rank 0's, in bytes; on a GPU that of its tensors
  std::int64_t largest_peak_memory = 0;   // largest of all ranks
  std::optional<std::int64_t> skipped{};  // steps that changed nothing, since the run began (skipped_steps.hpp)
};
struct StepEvaluation {
  std::int64_t step = 0;
  Evaluation result{};
};

struct TrainingState {
  std::shared_ptr<torch::nn::Module> model;
  std::vector<NamedTensor> parameters;      // of the model, sharing its memory; a tied one under its first name only
  std::map<std::string, std::string> tied;  // each further name of a parameter, with its first name
  std::vector<NamedTensor> buffers;
  std::unique_ptr<Optimizer> optimizer;
  std::optional<WeightAverage> average;  // set if optimizer.ema is configured
  StateValues values;                    // exactly the values that the config's rules need (evaluation_rules.hpp)
  std::int64_t step = 0;                 // number of finished steps
  BucketOrder bucket_order;              // gradient buckets of the next step; empty before the first step
  std::int64_t started_from = 0;         // finished steps when the run began or resumed
  int world = 0;                         // number of ranks since step `world_since`; 0: no step yet
  std::int64_t world_since = 0;
  RunIdentity run;
  std::optional<StepFigures> figures;
  std::optional<StepEvaluation> evaluation;

  std::string taken;  // message: what a new run took from model.init; empty without it

  std::string device = "cpu";  // "cpu", or the name of the GPU that holds the state

  // A forward pass changes the buffers, so a copy from before the current step is kept (decision 20). It is needed if a failed
  // step can be repeated, which is the case in a group that survives the loss of a peer. It is also kept if steps may be
  // skipped.
  bool may_be_undone = true;
  enum class Stage { kBetweenSteps, kExchanging, kUpdating } stage = Stage::kBetweenSteps;
  std::vector<at::Tensor> buffers_before;
};

// A tensor of the state. Saving, loading, sharing, comparing and the search for NaN use this list. A new kind of tensor needs
// to be added only here; its role selects the file in a checkpoint.
struct StateTensor {
  enum class Role { kParameter, kBuffer, kOptimizer, kAverage };
  Role role = Role::kParameter;
  NamedTensor entry;  // shares its memory; detached
};
using StateMap = std::vector<StateTensor>;

// The order is the same on every rank.
StateMap state_map(const TrainingState& state);

// A step changes weights and moments only after its last exchange with the other ranks. So a step that fails in an exchange
// leaves the state as it was, except for the buffers.
void begin_step(TrainingState& state);
void begin_update(TrainingState& state);
// Call between begin_update() and end_step(): makes the optimizer's step with this learning rate and updates the average of the
// weights. Not called for a skipped step (trainer/loop/skipping.hpp).
void update_weights(TrainingState& state, double lr);
// Restores the buffers from before the step, if they were kept.
void put_buffers_back(TrainingState& state);
void end_step(TrainingState& state);
// Restores the state after state.step steps. Returns false if that is impossible: the update of the weights was interrupted, or
// no copy of the buffers exists.
bool undo_step(TrainingState& state);

// Returns the trained parameters. A frozen one (requires_grad false) is saved, but neither updated nor clipped.
std::vector<NamedTensor> trained_parameters(const TrainingState& state);

// Returns the state of that model without an optimizer.
TrainingState state_of(std::shared_ptr<torch::nn::Module> model);

// Returns the state of that model: parameters, buffers, and an optimizer for the trained parameters.
TrainingState state_around(std::shared_ptr<torch::nn::Module> model, const OptimizerConfig& config);

// Copies weights and buffers of a safetensors file or a checkpoint's folder into a model that is not trained further, including
// the config's low-rank updates. A checkpoint's average is preferred to its weights. A config.json next to them is compared
// (initial_weights.hpp). Absent low-rank updates keep their initial values, which change no result. An absent buffer is an
// error, since the initial one would be used as if it were learned. Throws UsageError if they don't fit.
void take_weights(const std::shared_ptr<torch::nn::Module>& model, const std::filesystem::path& source,
                  const TrainConfig& config);

// A program's make_module() may use PyTorch's default generators, which are seeded around it. This function calls it twice. It
// throws UsageError that names a parameter or buffer which differs. Otherwise the weights would depend on the process, and a
// replaced worker or a restart before the first checkpoint would begin with different ones.
void require_same_module(const Task& task, const Description& samples, std::uint64_t seed, c10::Device device);

// Returns the state of a new run: weights from the config's seed, or from model.init. Throws UsageError if these don't fit.
TrainingState new_training_state(const Task& task, const Description& samples, const TrainConfig& config, c10::Device device);

// Replaces the state by a checkpoint's. An average or a plateau that is configured but not in the checkpoint begins here.
// Throws UsageError, naming `source`, if the checkpoint is of another model, optimizer or data position.
void restore(TrainingState& state, const CheckpointState& saved, const TrainConfig& config, const RunLength& length,
             const std::filesystem::path& source);

// The part of restore() that does not depend on the config: tensors, step, the order of buckets. Throws UsageError, naming
// `source`.
void take_tensors(TrainingState& state, const CheckpointState& saved, const std::filesystem::path& source);

// Returns the state as a checkpoint, without the entries from a config.
CheckpointState saved_tensors(const TrainingState& state);

// Returns the state as a checkpoint. `bucket_order` is the current one.
CheckpointState checkpoint_of(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                              const BucketOrder& bucket_order, int world);

// Returns why a run that resumes from `saved` gets equal numbers only up to rounding, not to the bit (decision 18), for example
// "workers: 3 instead of 2". Empty if there is no such reason.
std::string rounding_differences(const CheckpointState& saved, const TrainingState& state, const TrainConfig& config,
                                 int world);

// Name of the value that counts the updates of the average.
inline constexpr const char* kUpdatesOfAverage = "average.updates";

// True if no weight and no moment of the optimizer is NaN or infinite.
bool all_finite(const TrainingState& state);

}  // namespace ddprun::trainer
