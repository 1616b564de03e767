#include "launcher/scheduler_status/slurm_comment_post.hpp"

#include "launcher/scheduler_status/slurm_comment.hpp"
#include "launcher/submit/slurm/slurm_commands.hpp"

namespace ddprun {

std::string set_slurm_comment(const std::string& job, const std::string& comment) {
  const SlurmAnswer shown = run_slurm({"scontrol", "show", "job", job});
  if (!shown.succeeded) return shown.problem;
  if (!may_set_slurm_comment(shown.text)) return "";
  const SlurmAnswer answer = run_slurm({"scontrol", "update", "JobId=" + job, "Comment=" + comment});
  return answer.succeeded ? "" : answer.problem;
}

}  // namespace ddprun
