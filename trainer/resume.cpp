#include "trainer/resume.hpp"

#include <limits>
#include <system_error>
#include <vector>

#include "common/error.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::int64_t kNone = -1;

// Newest step of at most `bound` that is valid here.
std::int64_t newest_valid(const std::vector<Candidate>& candidates, std::int64_t bound) {
  for (const Candidate& candidate : candidates) {
    if (candidate.problem.empty() && candidate.step <= bound) return candidate.step;
  }
  return kNone;
}

std::string names_of(const std::vector<Candidate>& candidates) {
  std::string names;
  for (const Candidate& candidate : candidates) {
    names += "\n  " + candidate.path.string() + ": " +
             (candidate.problem.empty() ? "valid here, but not for all ranks" : candidate.problem);
  }
  return names;
}

// Renames the published checkpoints of steps past `step`, so that this run never mistakes them for its own.
void supersede_after(const std::filesystem::path& checkpoints, std::int64_t step, const std::vector<Candidate>& candidates,
                     const Warn& warn) {
  bool moved = false;
  for (const Candidate& candidate : candidates) {
    if (candidate.step <= step || !std::filesystem::exists(candidate.path))
      continue;  // bad ones may have been set aside by now
    std::filesystem::path target = candidate.path.string() + ".superseded";
    for (int n = 2; std::filesystem::exists(target); ++n) target = candidate.path.string() + ".superseded-" + std::to_string(n);
    std::filesystem::rename(candidate.path, target);
    warn(candidate.path.string() + " is past the step this run starts from; renamed to " + target.filename().string());
    moved = true;
  }
  if (!moved) return;
  // `latest` must not name what is no longer there. It is only a convenience: the next save points it to the newest again.
  const std::filesystem::path latest = checkpoints / "latest";
  std::error_code none;
  if (std::filesystem::is_symlink(latest, none) && !std::filesystem::exists(latest, none))
    std::filesystem::remove(latest, none);
}

ResumeFrom checkpoint_at(const std::filesystem::path& path, const Peers& peers) {
  const CheckpointState saved = load_checkpoint(path);
  if (peers.smallest(saved.step) != peers.largest(saved.step)) {
    throw UsageError("--resume " + path.string() + " is not the same checkpoint for all ranks (here: step " +
                     std::to_string(saved.step) + ")");
  }
  return {saved.step, path};
}

}  // namespace

std::optional<ResumeFrom> agree_on_checkpoint(const std::filesystem::path& checkpoints, const Peers& peers, const Warn& warn) {
  const std::vector<Candidate> candidates = inspect_checkpoints(checkpoints);
  if (peers.largest(static_cast<std::int64_t>(candidates.size())) == 0) return std::nullopt;

  // Each turn lowers the bound, at most once per checkpoint that some rank lacks.
  std::int64_t agreed = kNone;
  for (std::int64_t bound = std::numeric_limits<std::int64_t>::max();; bound = agreed - 1) {
    agreed = peers.smallest(newest_valid(candidates, bound));
    if (agreed == kNone) break;
    const bool have = newest_valid(candidates, agreed) == agreed;
    if (peers.smallest(have ? 1 : 0) == 1) break;
  }
  if (agreed == kNone) {
    throw BadCheckpointError(
        "no checkpoint in " + checkpoints.string() +
        " can be used, and starting over would lose the run:" + names_of(candidates) +
        "\nRestore one of them, or start anew with --fresh (which keeps the old directory under another name)");
  }

  const Candidate* chosen = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.step == agreed && candidate.problem.empty()) chosen = &candidate;
    if (candidate.problem.empty() || peers.rank() != 0) continue;
    const std::filesystem::path aside = set_aside(candidate);
    warn("checkpoint " + candidate.path.string() + " is bad: " + candidate.problem + "; set aside as " +
         aside.filename().string());
  }
  // A newer one that is valid here but not for all ranks would be "already published" when its step is saved again, and is not
  // what the others go on from.
  if (peers.rank() == 0) {
    supersede_after(checkpoints, agreed, candidates, warn);
    try {
      mend_latest(chosen->path);
    } catch (const std::system_error& error) {
      warn(std::string(error.what()) + "; it is for people only, and the run goes on");
    }
  }
  return ResumeFrom{agreed, chosen->path};
}

std::optional<ResumeFrom> choose_resume(const Options& options, int restart_count, const std::filesystem::path& checkpoints,
                                        const Peers& peers, const Warn& warn) {
  if (options.resume == Options::Resume::kAuto || restart_count > 0) {
    auto newest = agree_on_checkpoint(checkpoints, peers, warn);
    if (newest || options.resume != Options::Resume::kPath) return newest;
    return checkpoint_at(options.resume_from, peers);  // failed before its first save
  }
  std::optional<ResumeFrom> start;
  if (options.resume == Options::Resume::kPath) start = checkpoint_at(options.resume_from, peers);
  if (peers.rank() == 0) supersede_after(checkpoints, start ? start->step : kNone, inspect_checkpoints(checkpoints), warn);
  peers.meet();  // before anybody looks at the folder again
  return start;
}

}  // namespace ddprun::trainer
