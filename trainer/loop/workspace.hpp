// The objects that training needs in addition to its state, and that can be rebuilt at any time: data, process group, strategy,
// loader, logs. A Workspace belongs to one process group. After a lost peer a new one is made around the same TrainingState.
// trainer/life/prepare_workspace.cpp makes it, and train() uses it.
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

// The objects that exist before a process group and outlive it.
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
  StateOrigin origin;                          // survivors of a lost peer may have left the last step's log or save undone
  Mesh mesh;                                   // assigns the shares of a batch to ranks
  std::unique_ptr<Strategy> strategy{};        // works on the state's parameters
  std::unique_ptr<SyncedBatchNorms> synced{};  // batch norms of the state's model; null if not configured
  std::unique_ptr<Loader> loader{};            // begins at the state's step
  std::unique_ptr<Upload> upload{};            // moves the loader's batches to the device
  std::unique_ptr<Upload> test_upload{};       // the same for test samples, whose source may finish them in another way
  std::unique_ptr<Ledger> ledger{};            // null if not configured
  std::unique_ptr<StepTrace> trace{};          // traces chosen steps; null in a loop without a run directory
  StepPace pace{};                             // step times for the agent
  Checkpointing* checkpointing = nullptr;      // set on rank 0 and on writers of a node's copy; outlives groups
  // Makes a writer for the run directory on a rank other than 0, for a save after its data has failed. Empty if not needed.
  std::function<std::unique_ptr<Checkpointing>()> second_writer{};
};

// Collective. The state must be complete. The caller adds ledger and checkpointing, which only some ranks have. Throws the
// strategy's errors: ranks with different parameters, a lost peer.
Workspace make_workspace(const Means& means, const Peers& peers, const TrainingState& state, StateOrigin origin);

}  // namespace ddprun::trainer
