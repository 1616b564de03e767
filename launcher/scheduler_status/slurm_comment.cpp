#include "launcher/scheduler_status/slurm_comment.hpp"

#include "launcher/submit/slurm/slurm_job.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kMaxComment = 200;  // characters

}  // namespace

std::optional<std::string> slurm_job_without_comment(const Environment& environment) {
  return environment("SLURM_JOB_COMMENT") ? std::nullopt : slurm_job_of(environment);
}

std::string slurm_comment(const ProgressShown& progress) {
  std::string comment = "ddprun: ";
  bool after_space = false;
  for (const char c : progress_line(progress)) {
    // progress_line() separates its parts with two spaces.
    if (c == ' ' && after_space) {
      comment.back() = ',';
      comment += ' ';
    } else if (c >= ' ' && c <= '~' && c != '"' && c != '\'' && c != '\\') {
      comment += c;
    }
    after_space = c == ' ';
  }
  if (comment.size() > kMaxComment) comment.resize(kMaxComment);
  return comment;
}

std::vector<std::string> slurm_comment_command(const std::string& job, const ProgressShown& progress) {
  return {"scontrol", "update", "JobId=" + job, "Comment=" + slurm_comment(progress)};
}

}  // namespace ddprun
