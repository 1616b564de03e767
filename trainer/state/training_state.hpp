// What must survive a restart: the weights, the optimizer's state and the number of finished steps, from which the position in
// the data and every random number follow (trainer/data/run_length.hpp, trainer/loop/seeds.hpp). What can be rebuilt is in
// trainer/loop/workspace.hpp.
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

// What the newest logged step and the newest evaluation showed. Every rank keeps them: rank 0 may be lost between the moment at
// which the others know them and the moment at which it has written them.
struct StepFigures {
  std::int64_t step = 0;
  double loss = 0;  // the mean over the global batch
  double lr = 0;
  double gradient_norm = 0;               // of its gradient, before it was clipped; may be infinite
  std::int64_t peak_memory = 0;           // in bytes: rank 0's, on a GPU of its tensors there
  std::int64_t largest_peak_memory = 0;   // of all ranks
  std::optional<std::int64_t> skipped{};  // steps that changed nothing, since the run began (skipped_steps.hpp)
};
struct StepEvaluation {
  std::int64_t step = 0;
  Evaluation result{};
};

struct TrainingState {
  std::shared_ptr<torch::nn::Module> model;
  std::vector<NamedTensor> parameters;      // of the model, shared with it; one that it has under several names under the first
  std::map<std::string, std::string> tied;  // the other names, and the first
  std::vector<NamedTensor> buffers;
  std::unique_ptr<Optimizer> optimizer;
  std::optional<WeightAverage> average;  // where optimizer.ema asks for one
  StateValues values;                    // what the config asks to remember, and nothing else (evaluation_rules.hpp)
  std::int64_t step = 0;                 // finished
  BucketOrder bucket_order;              // of the gradients of the next step; empty before the first
  std::int64_t started_from = 0;         // finished steps when the run began or resumed
  int world = 0;  // ranks that shared each batch, from the step on that follows the next number; 0: none yet
  std::int64_t world_since = 0;
  RunIdentity run;
  std::optional<StepFigures> figures;
  std::optional<StepEvaluation> evaluation;

  std::string taken;  // what a new run took of model.init, for people; empty without it

  std::string device = "cpu";  // where it is: "cpu", or the GPU's name

  // Of the step under way: a forward pass changes the buffers, so those before it are kept (decision 20), where a step that
  // fails can be begun again at all: in a group that survives the loss of a peer. They are kept as well where a step may be
  // skipped.
  bool may_be_undone = true;
  enum class Stage { kBetweenSteps, kExchanging, kUpdating } stage = Stage::kBetweenSteps;
  std::vector<at::Tensor> buffers_before;
};

// A tensor of the state. All that is saved, loaded, shared, compared and looked at for NaN goes by this list, so that what is
// added to a state is added here, and a checkpoint's file is chosen by the role.
struct StateTensor {
  enum class Role { kParameter, kBuffer, kOptimizer, kAverage };
  Role role = Role::kParameter;
  NamedTensor entry;  // shares its memory; detached
};
using StateMap = std::vector<StateTensor>;

// In the same order on every rank.
StateMap state_map(const TrainingState& state);

// A step changes weights and moments after its last exchange with the other ranks only, so that one that fails in an exchange
// leaves the state as it was before, but for the buffers.
void begin_step(TrainingState& state);
void begin_update(TrainingState& state);
// Between these two: the optimizer's step with this learning rate, and what follows the weights; left out in a step that is
// skipped (trainer/loop/skipping.hpp).
void update_weights(TrainingState& state, double lr);
// The buffers as they were when the step began, where they were kept.
void put_buffers_back(TrainingState& state);
void end_step(TrainingState& state);
// Back to the state after state.step steps. False: nobody can tell what the weights are, since their update was cut off, or
// what the buffers were.
bool undo_step(TrainingState& state);

// Of those, what is trained: a frozen one (requires_grad false) is saved, and neither stepped nor clipped.
std::vector<NamedTensor> trained_parameters(const TrainingState& state);

// The state of that model alone, without an optimizer.
TrainingState state_of(std::shared_ptr<torch::nn::Module> model);

// The state around that model: parameters, buffers, and an optimizer for what is trained.
TrainingState state_around(std::shared_ptr<torch::nn::Module> model, const OptimizerConfig& config);

// The weights and buffers of a safetensors file or of a checkpoint's folder, which are its average where it has one, into a
// model that learns no more, with the config's low-rank updates. A config.json next to them is compared (initial_weights.hpp).
// Updates that are not there stay as they are, which changes nothing; a buffer that is not there is missed, since a new model's
// would be taken for what was learnt. Throws UsageError when they don't fit.
void take_weights(const std::shared_ptr<torch::nn::Module>& model, const std::filesystem::path& source,
                  const TrainConfig& config);

// A program's make_module() may draw from PyTorch's default generators, which are seeded around it. Calls it twice and throws
// UsageError that names a parameter or buffer which differs: the weights would depend on the start, and a replaced worker or a
// restart before the first checkpoint would begin with others.
void require_same_module(const Task& task, const Description& samples, std::uint64_t seed, c10::Device device);

// A new run's: weights from the config's seed, or from model.init. Throws UsageError when they don't fit.
TrainingState new_training_state(const Task& task, const Description& samples, const TrainConfig& config, c10::Device device);

// Replaces the state by a checkpoint's. What the config asks for and the checkpoint lacks begins with it: an average, a
// plateau. Throws UsageError, naming `source`, when it is of another model, optimizer or data position.
void restore(TrainingState& state, const CheckpointState& saved, const TrainConfig& config, const RunLength& length,
             const std::filesystem::path& source);

// The part of it that no config has a word in: tensors, step, the order of buckets. Throws UsageError, naming `source`.
void take_tensors(TrainingState& state, const CheckpointState& saved, const std::filesystem::path& source);

// The state as a checkpoint, without what a config says of it.
CheckpointState saved_tensors(const TrainingState& state);

// The state as a checkpoint. `bucket_order` is the one in use.
CheckpointState checkpoint_of(const TrainingState& state, const TrainConfig& config, const RunLength& length,
                              const BucketOrder& bucket_order, int world);

// Why a run that goes on from `saved` has numbers that agree to rounding only and not to the bit (decision 18), such as
// "3 workers instead of 2"; empty when nothing of that differs.
std::string rounding_differences(const CheckpointState& saved, const TrainingState& state, const TrainConfig& config,
                                 int world);

// How often the average was updated: a value of the state.
inline constexpr const char* kUpdatesOfAverage = "average.updates";

// True when no weight and no moment of the optimizer is NaN or infinite.
bool all_finite(const TrainingState& state);

}  // namespace ddprun::trainer
