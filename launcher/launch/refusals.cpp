// Implementation of refusals.hpp. Each message contains a solution.
#include "launcher/launch/refusals.hpp"

#include <filesystem>

#include "common/base/error.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/run_directory/run_lock.hpp"
#include "launcher/config_files/config_files.hpp"
#include "launcher/machine/ports.hpp"

namespace ddprun {

bool has_checkpoints(const Plan& plan) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(RunLayout{plan.run_dir}.checkpoints(), ignored)) {
    if (entry.path().filename().string().starts_with("step-")) return true;
  }
  return false;
}

void refuse_mixed_history(const Plan& plan) {
  if (plan.resume != Plan::Resume::kNever || plan.fresh || !has_checkpoints(plan)) return;
  throw UsageError("--resume never was given, but " + plan.run_dir.string() +
                   " contains checkpoints of an earlier run. Use --fresh to rename the folder and start over, or "
                   "--run-dir to choose another folder");
}

void refuse_taken_port(const Plan& plan) {
  if (plan.master_port != 0 && plan.master_port_need == PortNeed::kExactly)
    HeldPort::exactly(plan.master_port, kStoreCloseTimeout);
}

void refuse_invalid_start(const Plan& plan) {
  if (plan.kind == Plan::Kind::kTrain && plan.config) require_files(*plan.config, plan.worker.has_value());
  if (plan.run_dir.empty() || plan.rendezvous.many()) return;
  if (plan.kind != Plan::Kind::kTrain) return refuse_held_run(plan.run_dir);
  refuse_mixed_history(plan);
  examine_run_directory(plan.run_dir, *plan.config, plan.fresh ? FreshStart::kRename : FreshStart::kNo);
}

}  // namespace ddprun
