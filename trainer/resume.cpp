#include "trainer/resume.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>
#include <system_error>
#include <vector>

#include "common/error.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/visible_checkpoints.hpp"

namespace ddprun::trainer {
namespace {

using Copy = VisibleCheckpoints::Copy;
using Which = VisibleCheckpoints::Which;

constexpr std::int64_t kNone = VisibleCheckpoints::kNone;

struct Agreed {
  std::int64_t step = kNone;
  std::string content;  // of every rank's copy
};

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t end = 0; !text.empty(); text.remove_prefix(end + 1)) {
    end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
  }
  return lines;
}

// Which of rank 0's contents of that step all ranks have; empty when there is none. Collective.
std::string common_content(VisibleCheckpoints& seen, std::int64_t step, const Peers& peers) {
  std::string own;
  for (const std::string& content : seen.contents_of(step)) own += content + '\n';
  const std::vector<std::string> contents = lines_of(peers.from_rank_0(own));
  if (contents.empty()) return {};
  std::vector<std::int64_t> have;
  for (const std::string& content : contents) have.push_back(seen.find(step, content) != nullptr ? 1 : 0);
  peers.smallest_of_each(have);
  const auto common = std::find(have.begin(), have.end(), 1);
  return common == have.end() ? std::string() : contents[static_cast<std::size_t>(common - have.begin())];
}

// Each turn lowers the bound, at most once per checkpoint that some rank lacks. Collective.
Agreed agree(VisibleCheckpoints& seen, const Peers& peers) {
  for (std::int64_t bound = std::numeric_limits<std::int64_t>::max();;) {
    const std::int64_t step = peers.smallest(seen.newest_valid(bound));
    if (step == kNone) return {};
    if (const std::string content = common_content(seen, step, peers); !content.empty()) return {step, content};
    bound = step - 1;
  }
}

std::string names_of(const std::vector<Copy>& copies) {
  std::string names;
  for (const auto& [candidate, local, verified] : copies) {
    names += "\n  " + candidate.path.string() + ": " +
             (candidate.problem.empty() ? "valid here, but not for all ranks" : candidate.problem);
  }
  return names;
}

// `latest` must not name what is no longer there. It is only a convenience: the next save points it to the newest again.
void drop_dangling_latest(const std::filesystem::path& checkpoints) {
  const std::filesystem::path latest = checkpoints / "latest";
  std::error_code none;
  if (std::filesystem::is_symlink(latest, none) && !std::filesystem::exists(latest, none))
    std::filesystem::remove(latest, none);
}

void supersede(const std::filesystem::path& path, const Warn& warn) {
  std::filesystem::path target = path.string() + ".superseded";
  for (int n = 2; std::filesystem::exists(target); ++n) target = path.string() + ".superseded-" + std::to_string(n);
  std::filesystem::rename(path, target);
  warn(path.string() + " is not what this run goes on from; renamed to " + target.filename().string());
  drop_dangling_latest(path.parent_path());
}

// Takes what is bad out of the way, and what is valid here, but not what the others go on from: saved again, its step would be
// "already published". On a node's own disk another node of the same machine may do the same at the same time.
void clear_away(const std::vector<Copy>& copies, const Agreed& agreed, const Warn& warn) {
  for (const auto& [candidate, local, verified] : copies) {
    const bool other = candidate.step > agreed.step || (candidate.step == agreed.step && candidate.content != agreed.content);
    try {
      if (!candidate.problem.empty()) {
        const std::filesystem::path aside = set_aside(candidate);
        warn("checkpoint " + candidate.path.string() + " is bad: " + candidate.problem + "; set aside as " +
             aside.filename().string());
      } else if (other) {
        supersede(candidate.path, warn);
      }
    } catch (const std::system_error& error) {
      if (!local) throw;
      if (error.code() != std::errc::no_such_file_or_directory) warn(error.what());
    }
  }
}

// Of the run directory; a copy on a node's own disk has none that anybody looks at.
void mend_latest_of(const std::vector<Copy>& copies, const Agreed& agreed, const Warn& warn) {
  for (const auto& [candidate, local, verified] : copies) {
    if (candidate.step != agreed.step || candidate.content != agreed.content) continue;
    try {
      mend_latest(candidate.path);
    } catch (const std::system_error& error) {
      warn(std::string(error.what()) + "; it is for people only, and the run goes on");
    }
    return;
  }
  warn("the run directory has no valid checkpoint of step " + std::to_string(agreed.step) +
       ": the run goes on from the copies on the nodes' own disks");
}

// A start from an earlier step than the newest, or from nothing.
void clear_away_after(std::int64_t step, const CheckpointPlaces& places, const Peers& peers, const Warn& warn) {
  VisibleCheckpoints seen(places);
  for (const auto& [candidate, local, verified] : seen.listed()) {
    if (candidate.step <= step || !(local ? places.mends_local : peers.rank() == 0)) continue;
    try {
      supersede(candidate.path, warn);
    } catch (const std::system_error& error) {
      if (!local || error.code() != std::errc::no_such_file_or_directory) throw;
    }
  }
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

std::optional<ResumeFrom> agree_on_checkpoint(const CheckpointPlaces& places, const Peers& peers, const Warn& warn) {
  VisibleCheckpoints seen(places);
  if (places.mends_local && !seen.trouble().empty()) warn(seen.trouble() + "; copies on this node's disk are not looked at");
  if (peers.largest(seen.count()) == 0) return std::nullopt;
  const Agreed agreed = agree(seen, peers);
  if (agreed.step == kNone) {
    throw BadCheckpointError(
        "no checkpoint in " + places.run_directory.string() +
        " can be used, and starting over would lose the run:" + names_of(seen.verified(Which::kAll)) +
        "\nRestore one of them, or start anew with --fresh (which keeps the old directory under another name)");
  }
  const ResumeFrom chosen{agreed.step, seen.find(agreed.step, agreed.content)->candidate.path};
  if (places.mends_local) clear_away(seen.verified(Which::kLocal), agreed, warn);
  if (peers.rank() == 0) {
    const std::vector<Copy> copies = seen.verified(Which::kRunDirectory);
    clear_away(copies, agreed, warn);
    mend_latest_of(copies, agreed, warn);
  }
  return chosen;
}

std::optional<ResumeFrom> choose_resume(const Options& options, int restart_count, const CheckpointPlaces& places,
                                        const Peers& peers, const Warn& warn) {
  // Agents of other nodes may have been started with other words; --fresh is rank 0's alone.
  const bool never = peers.from_rank_0(options.resume == Options::Resume::kNever ? "never" : "") == "never";
  const bool path = !never && options.resume == Options::Resume::kPath;
  if ((!never && !path) || restart_count > 0) {
    auto newest = agree_on_checkpoint(places, peers, warn);
    if (newest || !path) return newest;
    return checkpoint_at(options.resume_from, peers);  // failed before its first save
  }
  std::optional<ResumeFrom> start;
  if (path) start = checkpoint_at(options.resume_from, peers);
  clear_away_after(start ? start->step : kNone, places, peers, warn);
  peers.meet();  // before anybody looks at the folder again
  return start;
}

}  // namespace ddprun::trainer
