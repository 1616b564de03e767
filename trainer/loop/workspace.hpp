// All objects that training needs in addition to the training state: process group, strategy, loader, logs. They contain
// nothing that must survive a failure, so they can be rebuilt at any time. A Workspace belongs to one process group. After a
// rank was lost, trainer/life/prepare_workspace.cpp makes a new Workspace for the new group, and keeps the TrainingState.
// train() uses both.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/batch_norm/batch_norm.hpp"
#include "trainer/cost/step_trace.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/data/run_length.hpp"
#include "trainer/data/source.hpp"
#include "trainer/data/upload.hpp"
#include "trainer/loop/checkpointing.hpp"
#include "trainer/loop/run_log.hpp"
#include "trainer/loop/step_pace.hpp"
#include "trainer/metrics/ledger.hpp"
#include "trainer/parallel/peers.hpp"
#include "trainer/state/state_origin.hpp"
#include "trainer/state/training_state.hpp"
#include "trainer/strategy/strategy.hpp"
#include "trainer/surroundings/fault_injection.hpp"
#include "trainer/surroundings/status.hpp"
#include "trainer/surroundings/stop_gate.hpp"

namespace ddprun::trainer {

// Objects that are created before the first process group and used in each group.
struct TrainContext {
  const TrainConfig& config;
  RunLength length;
  c10::Device device;
  const Task& task;
  const Sources& data;
  const Faults& faults;
  Status& status;
  RunLog& log;
  StopGate& gate;
};

struct Workspace : TrainContext {
  Peers peers;
  // If this is kSurvivors, the last step may not be logged or saved yet.
  StateOrigin origin;
  Mesh mesh;                                   // determines which samples of a batch this rank uses
  std::unique_ptr<Strategy> strategy{};        // reduces the gradients and updates the parameters of the state
  std::unique_ptr<SyncedBatchNorms> synced{};  // the synchronized batch norms of the model; null if not configured
  std::unique_ptr<Loader> loader{};            // yields batches from the state's step on
  std::unique_ptr<Upload> upload{};            // copies the loader's batches to the device
  // copies the test samples to the device; the conversion there may differ from the conversion of training samples
  std::unique_ptr<Upload> test_upload{};
  std::unique_ptr<Ledger> ledger{};    // records the samples of each step; null if not configured
  std::unique_ptr<StepTrace> trace{};  // records traces of selected steps; null if there is no run directory
  StepPace pace{};                     // step times for the agent
  // set on ranks that write checkpoints to the run directory or to the node's disk; not owned, used in each group
  Checkpointing* checkpointing = nullptr;
  // Creates the checkpoint writer with which this rank saves the state before it fails because it cannot read its data. The
  // function is empty on rank 0, which has `checkpointing`.
  std::function<std::unique_ptr<Checkpointing>()> second_writer{};
};

// This call is collective. The state must be complete. The caller must set `ledger` and `checkpointing`, which only some ranks
// have. Throws the strategy's errors if the ranks have different parameters or another rank is lost.
Workspace make_workspace(const TrainContext& context, const Peers& peers, const TrainingState& state, StateOrigin origin);

}  // namespace ddprun::trainer
