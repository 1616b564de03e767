#include "launcher/scheduler_status/slurm_comment.hpp"

#include "common/base/split.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kMaxComment = 200;  // characters
constexpr std::string_view kStart = "ddprun: ";

}  // namespace

std::string slurm_comment(const ProgressShown& progress) {
  std::string comment(kStart);
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

bool may_set_slurm_comment(std::string_view scontrol_job) {
  constexpr std::string_view kField = "Comment=";
  for (std::string_view line : split(scontrol_job, '\n')) {
    line = without_spaces_around(line);
    if (line.starts_with(kField)) return line == kField || line.substr(kField.size()).starts_with(kStart);
  }
  return true;
}

}  // namespace ddprun
