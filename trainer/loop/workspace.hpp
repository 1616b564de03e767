// What training needs beside its state and can be rebuilt at any time: data, the ranks' group, the strategy, the loader, the
// logs. One Workspace belongs to one process group; after a lost peer another one is made around the same TrainingState. The
// worker's life makes it (trainer/life/prepare_workspace.cpp), train() uses it.
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

// What is there before a group is, and outlives it.
struct Means {
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

struct Workspace : Means {
  Peers peers;
  StateOrigin origin;                          // survivors of a loss may not have done what belongs to the last step
  Mesh mesh;                                   // who takes which share of a batch
  std::unique_ptr<Strategy> strategy{};        // around the state's parameters
  std::unique_ptr<SyncedBatchNorms> synced{};  // those of the state's model, where the config asks for it
  std::unique_ptr<Loader> loader{};            // from the state's step on
  std::unique_ptr<Upload> upload{};            // of what the loader makes, to the device
  std::unique_ptr<Upload> test_upload{};       // of the test samples, whose source may finish them in another way
  std::unique_ptr<Ledger> ledger{};            // when asked for
  std::unique_ptr<StepTrace> trace{};          // of chosen steps; null in a loop without a run directory
  StepPace pace{};                             // what the agent hears of it
  Checkpointing* checkpointing = nullptr;      // rank 0's, and who writes a copy for its node; outlives groups
  // Makes a writer in the run directory for another rank than 0, for a save after its data has failed. Empty: none is needed.
  std::function<std::unique_ptr<Checkpointing>()> second_writer{};
};

// Collective. For a state that is whole; without ledger and checkpointing, which are not everybody's. Throws what the
// strategy does: ranks with unlike parameters, a lost peer.
Workspace make_workspace(const Means& means, const Peers& peers, const TrainingState& state, StateOrigin origin);

}  // namespace ddprun::trainer
