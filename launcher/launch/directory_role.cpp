// Implementation of directory_role.hpp.
#include "launcher/launch/directory_role.hpp"

#include "common/base/error.hpp"
#include "common/run_directory/run_lock.hpp"

namespace ddprun {

using Lead = rendezvous::NodeShellSettings::Lead;

DirectoryLeader leader_by_settings(const std::optional<NetworkStart>& network, const std::filesystem::path& run_dir) {
  if (!network || run_dir.empty() || network->shell.lead == Lead::kYes) return DirectoryLeader::kThisAgent;
  return network->shell.lead == Lead::kNo ? DirectoryLeader::kAnotherAgent : DirectoryLeader::kHolderOfLock;
}

DirectoryRole acquire_or_follow(const std::filesystem::path& run_dir, std::optional<NetworkStart>& network,
                                const LeaderSteps& steps) {
  const DirectoryLeader leader = leader_by_settings(network, run_dir);
  const auto another_leads = [&] {
    return leader == DirectoryLeader::kAnotherAgent || (leader == DirectoryLeader::kHolderOfLock && run_lock_is_held(run_dir));
  };
  if (!another_leads()) {
    if (steps.check) steps.check();
    try {
      steps.open();
      return DirectoryRole::kLead;
    } catch (const UsageError&) {
      if (!another_leads()) throw;
    }
  }
  network->shell.lead = Lead::kNo;
  return DirectoryRole::kFollow;
}

}  // namespace ddprun
