// Sets the comment of a Slurm job. The agent starts a separate process for it (progress_poster.hpp), because scontrol may
// block.
#pragma once

#include <string>
#include <string_view>

namespace ddprun {

// The first argument of ddprun that starts this process. It is followed by the job and the comment.
inline constexpr std::string_view kSetSlurmCommentCommand = "internal-set-slurm-comment";

// Sets the comment, unless the user has set one. Returns the problem, or "" on success.
std::string set_slurm_comment(const std::string& job, const std::string& comment);

}  // namespace ddprun
