// Chooses the network settings: the workers' master address and port, the run id, and the rendezvous settings of a multi-node
// job. plan.cpp calls these functions. They do not resolve host names or open ports.
#pragma once

#include <filesystem>

#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Reads the network options into the plan and records their sources. With a train.json, the defaults are a free port and the
// config's name as run id. A script has torchrun's defaults: port 29500 and run id "none". Throws UsageError.
void choose_network(Plan& plan, const Settings& settings, const Machine& machine, const Environment& environment,
                    const std::filesystem::path& cwd);

// Decides whether a process of ddprun or rank 0 hosts the store of scripts at MASTER_PORT. Reads --agent-store, or else
// PyTorch's variable TORCH_DISABLE_SHARE_RDZV_TCP_STORE, and records the source. With a train.json this store does not exist.
void choose_store(Plan& plan, const Settings& settings, const Environment& environment);

// Reads --metrics-port into the plan and records its source. Throws UsageError.
void choose_metrics_port(Plan& plan, const Settings& settings);

}  // namespace ddprun
