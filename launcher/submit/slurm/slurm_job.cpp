#include "launcher/submit/slurm/slurm_job.hpp"

#include <algorithm>

#include "common/base/printable.hpp"
#include "common/base/split.hpp"
#include "launcher/submit/slurm/slurm_time.hpp"

namespace ddprun {
namespace {

bool is_number(std::string_view text) {
  constexpr std::size_t kMaxDigits = 10;
  return !text.empty() && text.size() <= kMaxDigits && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Returns the value of " Name=value " in the line; an empty text if the name is missing. The job's name comes first in the
// line and may contain anything, so the search starts after it.
std::string_view field(std::string_view line, std::string_view name) {
  line = line.substr(std::min(line.find(" JobState="), line.size()));
  const std::size_t at = line.find(" " + std::string(name) + "=");
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + name.size() + 2);
  return line.substr(0, line.find(' '));
}

}  // namespace

bool is_slurm_job(std::string_view word) {
  const std::size_t between = word.find('_');
  if (between == std::string_view::npos) return is_number(word);
  return is_number(word.substr(0, between)) && is_number(word.substr(between + 1));
}

std::optional<std::string> slurm_job_of(const Environment& environment) {
  const auto array = environment("SLURM_ARRAY_JOB_ID");
  const auto task = environment("SLURM_ARRAY_TASK_ID");
  const std::string job = array && task ? *array + "_" + *task : environment("SLURM_JOB_ID").value_or("");
  return is_slurm_job(job) ? std::optional(job) : std::nullopt;
}

SlurmJobState parse_scontrol_job(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  SlurmJobState state;
  state.requeue_allowed = field(line, "Requeue") != "0";
  const auto limit = parse_slurm_time(field(line, "TimeLimit"));
  const auto used = parse_slurm_time(field(line, "RunTime"));
  if (!limit || !used) return state;
  const double unlimited = 1e12;
  state.seconds_left = *limit == kNoTimeLimit ? unlimited : static_cast<double>((*limit - *used).count());
  return state;
}

std::vector<QueuedJob> parse_squeue(std::string_view text) {
  constexpr std::size_t kFields = 5;
  std::vector<QueuedJob> jobs;
  for (std::string_view line : split(text, '\n')) {
    const std::vector<std::string_view> parts = split(line, '|');
    if (parts.size() < kFields) continue;
    const std::size_t before_command = parts[0].size() + parts[1].size() + parts[2].size() + parts[3].size() + 4;
    jobs.push_back({.id = std::string(parts[0]),
                    .number = std::string(parts[1]),
                    .state = std::string(parts[2]),
                    .reason = std::string(parts[3]),
                    .command = std::string(line.substr(before_command))});
  }
  return jobs;
}

std::optional<std::string> parse_sbatch(std::string_view text) {
  const std::string_view id = text.substr(0, text.find_first_of(";\n"));
  return is_number(id) ? std::optional(std::string(id)) : std::nullopt;
}

std::string first_error_line(std::string_view text) {
  std::string_view line = text.substr(0, text.find('\n'));
  constexpr std::string_view kError = "error: ";
  if (const std::size_t at = line.find(kError); at != std::string_view::npos) line.remove_prefix(at + kError.size());
  constexpr std::size_t kMaxBytes = 500;
  return printable(cut_to(without_spaces_around(line), kMaxBytes));
}

}  // namespace ddprun
