// Implementation of directory_role.hpp: the decision as a pure function, and the one place that asks it.
#include "launcher/start/directory_role.hpp"

#include "common/base/error.hpp"
#include "common/run_directory/run_lock.hpp"

namespace ddprun {
namespace {

using Lead = DirectoryQuestion::Lead;

DirectoryRole ask_role(DirectoryQuestion question, const std::filesystem::path& run_dir) {
  if (depends_on_lock(question)) question.another_holds_lock = run_lock_is_held(run_dir);
  return role_in_directory(question);
}

}  // namespace

DirectoryRole role_in_directory(const DirectoryQuestion& question) {
  const bool others_may_be_there = question.lead && question.has_run_dir;
  if (others_may_be_there && question.lead == Lead::kNo) return DirectoryRole::kFollow;
  if (others_may_be_there && question.lead == Lead::kIfPortIsFree && question.another_holds_lock) return DirectoryRole::kFollow;
  return question.opening_refused ? DirectoryRole::kRefuse : DirectoryRole::kLead;
}

bool depends_on_lock(const DirectoryQuestion& question) {
  DirectoryQuestion held = question, free = question;
  held.another_holds_lock = true;
  free.another_holds_lock = false;
  return role_in_directory(held) != role_in_directory(free);
}

DirectoryRole open_or_follow(const std::filesystem::path& run_dir, std::optional<NetworkStart>& network,
                             const LeaderSteps& steps) {
  DirectoryQuestion question{.lead = network ? std::optional(network->shell.lead) : std::nullopt,
                             .has_run_dir = !run_dir.empty()};
  DirectoryRole role = ask_role(question, run_dir);
  if (role == DirectoryRole::kLead) {
    if (steps.check) steps.check();
    try {
      steps.open();
    } catch (const UsageError&) {
      question.opening_refused = true;
      role = ask_role(question, run_dir);
      if (role == DirectoryRole::kRefuse) throw;
    }
  }
  if (role == DirectoryRole::kFollow) network->shell.lead = Lead::kNo;
  return role;
}

}  // namespace ddprun
