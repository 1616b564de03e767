// What training needs beside its state and can be rebuilt at any time: data, the ranks' group, the Reducer, the loader, the
// logs. One Workspace belongs to one process group; after a lost peer another one is made around the same TrainingState.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/dataset.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/data/run_length.hpp"
#include "trainer/loop/checkpointing.hpp"
#include "trainer/loop/run_log.hpp"
#include "trainer/metrics/ledger.hpp"
#include "trainer/parallel/data_parallel.hpp"
#include "trainer/parallel/peers.hpp"
#include "trainer/surroundings/fault_injection.hpp"
#include "trainer/surroundings/status.hpp"
#include "trainer/surroundings/stop_gate.hpp"

namespace ddprun::trainer {

struct Workspace {
  const TrainConfig& config;
  RunLength length;
  c10::Device device;
  const Dataset& train_set;
  const Dataset& test_set;
  Normalization normalization;
  const Faults& faults;
  Status& status;
  RunLog& log;
  StopGate& gate;
  Peers peers;
  std::vector<at::Tensor> clipped{};  // parameters whose gradients are clipped together
  std::unique_ptr<DataParallel> parallel{};
  std::unique_ptr<Loader> loader{};
  std::unique_ptr<Ledger> ledger{};                // when asked for
  std::unique_ptr<Checkpointing> checkpointing{};  // rank 0, and who writes a copy for its node
  // The state comes from survivors of a loss: what belongs to its last step may not be done.
  bool regrouped = false;
};

}  // namespace ddprun::trainer
