#include "trainer/resume/resume.hpp"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/resume/divided_read.hpp"

namespace ddprun::trainer {
namespace {

using nlohmann::json;
using Copy = VisibleCheckpoints::Copy;
using Which = VisibleCheckpoints::Which;

constexpr std::int64_t kNone = -1;

// The checkpoint from which all ranks continue. `path` is set if this rank can read the checkpoint. `step` is kNone if there is
// no checkpoint.
struct Agreed {
  std::int64_t step = kNone;
  std::string content;
  std::string run;
  std::vector<int> holders;
  std::optional<std::filesystem::path> path;
  std::shared_ptr<const CheckpointState> saved{};  // the loaded checkpoint; null if this rank has not read it
};

int lowest_with(const std::vector<std::int64_t>& values, std::int64_t value) {
  return static_cast<int>(std::find(values.begin(), values.end(), value) - values.begin());
}

std::vector<int> ranks_with(const std::vector<std::int64_t>& values, std::int64_t value) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] == value) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

// ---- the options --resume and --fresh ----

struct ResumeRequest {
  Options::Resume resume = Options::Resume::kAuto;
  // For kPath: the path in this rank's option. If this rank lacks the option, the path of the lowest rank that has it.
  std::filesystem::path path;
};

// Returns the same request on all ranks, even if the agents of the nodes were started with different options. The option
// --fresh applies only if rank 0 has it. All ranks must call this.
ResumeRequest agree_on_resume_option(const Options& options, const Peers& peers) {
  const auto number = [](Options::Resume resume) { return static_cast<std::int64_t>(resume); };
  const std::vector<std::int64_t> choices = peers.from_all(number(options.resume));
  if (choices.front() == number(Options::Resume::kNever)) return {.resume = Options::Resume::kNever, .path = {}};
  const int requester = lowest_with(choices, number(Options::Resume::kPath));
  if (requester == peers.world()) return {};
  const std::string theirs = peers.from(requester, options.resume_from.string());
  const bool own = options.resume == Options::Resume::kPath;
  return {.resume = Options::Resume::kPath, .path = own ? options.resume_from : std::filesystem::path(theirs)};
}

// ---- the identity of the run ----

RunIdentity broadcast_identity(int source, const RunIdentity& run, const Peers& peers) {
  return run_identity_of(peers.from(source, text_of(run)));
}

// Returns the identity of the run, which distinguishes it from earlier runs in the same directory. If no rank has recorded an
// identity, the result is unknown, and the chosen checkpoint then determines it. All ranks must call this.
RunIdentity known_identity(VisibleCheckpoints& seen, const CheckpointPlaces& places, const Peers& peers, const Warn& warn) {
  enum : std::int64_t { kUnknown, kKnown, kOldVersion };
  RunIdentity own;
  std::int64_t knowledge = kUnknown;
  try {
    if (const auto kept = read_run_identity(places.run_file)) own = *kept, knowledge = kKnown;
  } catch (const UsageError& error) {
    if (peers.rank() == 0 || places.owns_node_disk)
      warn(std::string(error.what()) + "; the run is identified by its checkpoints instead");
  }
  if (peers.rank() == 0 && knowledge == kUnknown) {
    if (const Copy* const newest = seen.newest_valid([](const Copy& copy) { return !copy.local; })) {
      own.id = newest->candidate.run;
      knowledge = own.known() ? kKnown : kOldVersion;
    }
  }
  const std::vector<std::int64_t> all = peers.from_all(knowledge);
  const int source = all.front() == kOldVersion ? peers.world() : lowest_with(all, kKnown);
  return source == peers.world() ? RunIdentity{} : broadcast_identity(source, own, peers);
}

// ---- the newest checkpoint of any rank ----

std::string names_of(const std::vector<Copy>& copies) {
  std::string names;
  for (const Copy& copy : copies) {
    const Candidate& candidate = copy.candidate;
    names += "\n  " + candidate.path.string() + ": " +
             (candidate.problem.empty() ? "valid, but it belongs to another run" : candidate.problem);
  }
  return names.empty() ? "\n  (this node has no checkpoints; the errors from the other nodes list theirs)" : names;
}

// Finds the newest valid checkpoint of this run on any rank. `step` is kNone if no rank has a checkpoint. Throws
// BadCheckpointError if there are checkpoints, but no valid one of this run. All ranks must call this.
Agreed agree_on_newest(VisibleCheckpoints& seen, const RunIdentity& run, const CheckpointPlaces& places, const Peers& peers) {
  const Copy* const own =
      seen.newest_valid([&](const Copy& copy) { return !run.known() || run.has(copy.candidate.run, copy.candidate.step); });
  const std::vector<std::int64_t> steps = peers.from_all(own != nullptr ? own->candidate.step : kNone);
  Agreed agreed{.step = *std::max_element(steps.begin(), steps.end()), .content = {}, .run = {}, .holders = {}, .path = {}};
  if (agreed.step == kNone) {  // no rank has a valid checkpoint of this run
    const std::vector<Copy> all = seen.judged(Which::kAll);
    const bool bad = std::any_of(all.begin(), all.end(), [](const Copy& copy) { return !copy.candidate.problem.empty(); });
    if (peers.largest(bad ? 1 : 0) == 0) return {};
    throw BadCheckpointError(
        "no checkpoint in " + places.run_directory.string() + " can be used, and starting over would lose the run:" +
        names_of(all) + "\nRestore one of them, or start over with --fresh (which keeps the old directory under another name)");
  }
  const std::string facts =
      own != nullptr ? json{{"content", own->candidate.content}, {"run", own->candidate.run}}.dump() : std::string();
  const json chosen = json::parse(peers.from(lowest_with(steps, agreed.step), facts));
  agreed.content = chosen.at("content").get<std::string>();
  agreed.run = chosen.at("run").get<std::string>();
  const Copy* const mine = seen.find(agreed.step, agreed.content);
  if (mine != nullptr) agreed.path = mine->candidate.path;
  agreed.holders = ranks_with(peers.from_all(mine != nullptr ? 1 : 0), 1);
  return agreed;
}

// Finds the newest checkpoint, and loads it on all ranks that can read it. If the copy that a rank loads is damaged, all ranks
// search again without this copy. All ranks must call this.
Agreed load_newest(VisibleCheckpoints& seen, const RunIdentity& run, const CheckpointPlaces& places,
                   const CheckpointState& into, const Peers& peers) {
  std::shared_ptr<const CheckpointState> saved;
  std::optional<std::filesystem::path> saved_from;
  for (;;) {
    Agreed agreed = agree_on_newest(seen, run, places, peers);
    if (agreed.step == kNone) return agreed;
    const bool is_other = saved_from != agreed.path;
    if (is_other) saved.reset();  // frees the memory of the previous checkpoint before the next one is loaded
    CheckpointRead read = read_checkpoint(is_other ? agreed.path : std::nullopt, into, peers);
    const std::string& problem = read.problem;
    if (is_other) {
      saved = std::move(read.saved);
      saved_from = agreed.path;
    }
    if (!problem.empty()) seen.mark(*agreed.path, problem);
    if (peers.largest(problem.empty() ? 0 : 1) == 0) {
      agreed.saved = std::move(saved);
      return agreed;
    }
  }
}

// ---- the checkpoint that --resume PATH selects ----

Agreed agree_on_path(const std::filesystem::path& path, const CheckpointState& into, const Peers& peers, const Warn& warn) {
  std::error_code unknown;
  Candidate candidate{.step = kNone, .path = path, .problem = {}, .content = {}, .run = {}};
  if (std::filesystem::exists(path, unknown)) {
    judge_checkpoint(candidate);
  } else {
    candidate.problem = path.string() + " does not exist";
  }
  CheckpointRead read = read_checkpoint(candidate.problem.empty() ? std::optional(path) : std::nullopt, into, peers);
  if (candidate.problem.empty()) candidate.problem = read.problem;
  const bool has = candidate.problem.empty();
  const std::vector<std::int64_t> have = peers.from_all(has ? 1 : 0);
  const int first = lowest_with(have, 1);
  if (first == peers.world()) throw UsageError("--resume: no rank has a checkpoint that can be used: " + candidate.problem);
  const json facts{{"step", candidate.step}, {"content", candidate.content}, {"run", candidate.run}};
  const json chosen = json::parse(peers.from(first, facts.dump()));
  Agreed agreed{.step = chosen.at("step").get<std::int64_t>(),
                .content = chosen.at("content").get<std::string>(),
                .run = chosen.at("run").get<std::string>(),
                .holders = ranks_with(have, 1),
                .path = {}};
  const bool same = !has || (candidate.step == agreed.step && candidate.content == agreed.content);
  if (peers.smallest(same ? 1 : 0) == 0) {
    throw UsageError("--resume " + path.string() + ": the ranks found different checkpoints at this path (this rank: " +
                     (has ? "step " + std::to_string(candidate.step) : "none") + "). Give all nodes the same checkpoint");
  }
  if (has) {
    agreed.path = path;
    agreed.saved = std::move(read.saved);
  } else if (std::filesystem::exists(path, unknown)) {
    warn("--resume: " + candidate.problem + "; this rank receives the state from rank " + std::to_string(first));
  }
  return agreed;
}

// ---- renaming checkpoints that are not used ----

void supersede_and_report(const Copy& copy, const Warn& warn) {
  const std::filesystem::path target = supersede(copy.candidate.path);
  warn("this run does not resume from " + copy.candidate.path.string() + ": that checkpoint is renamed to " +
       target.filename().string());
}

// Runs `change`, which renames a checkpoint. Ignores an error if the checkpoint no longer exists, because another process may
// have renamed it. The other process can be a worker of an earlier invocation of the job that is still running, or a worker of
// another node on the same machine.
void guarded(const Copy& copy, const Warn& warn, const std::function<void()>& change) {
  try {
    change();
  } catch (const std::system_error& error) {
    std::error_code unknown;
    const bool gone =
        error.code() == std::errc::no_such_file_or_directory && !std::filesystem::exists(copy.candidate.path, unknown);
    if (gone) return;
    if (!copy.local) throw;
    warn(error.what());
  }
}

// Renames invalid checkpoints, checkpoints of steps after the chosen step, and checkpoints of the chosen step with different
// content. Otherwise a later save of such a step would find an existing checkpoint, and would write nothing.
void rename_unused(const std::vector<Copy>& copies, const Agreed& agreed, const Warn& warn) {
  for (const Copy& copy : copies) {
    const Candidate& candidate = copy.candidate;
    const bool other = candidate.step > agreed.step || (candidate.step == agreed.step && candidate.content != agreed.content);
    guarded(copy, warn, [&] {
      if (!candidate.problem.empty()) {
        const std::filesystem::path aside = set_aside(candidate);
        warn("checkpoint " + candidate.path.string() + " is damaged: " + candidate.problem + "; renamed to " +
             aside.filename().string());
      } else if (other) {
        supersede_and_report(copy, warn);
      }
    });
  }
}

// Points the link `latest` in the run directory to the chosen checkpoint. Warns if the run directory does not contain the
// chosen checkpoint.
void repair_latest_of(const std::vector<Copy>& copies, const Agreed& agreed, const Warn& warn) {
  for (const Copy& copy : copies) {
    if (copy.candidate.step != agreed.step || copy.candidate.content != agreed.content) continue;
    try {
      repair_latest(copy.candidate.path);
    } catch (const std::system_error& error) {
      warn(std::string(error.what()) + "; ddptrain does not need this link, and the run continues");
    }
    return;
  }
  warn("the run directory has no valid checkpoint of step " + std::to_string(agreed.step) + ": the run continues from " +
       (agreed.path ? "the copies on the local disks of the nodes"
                    : "the checkpoint of rank " + std::to_string(agreed.holders.front()) + ", which sends it"));
}

// Renames all checkpoints after `step`, valid or not. This is used when a run starts from step 0 or from a path that the user
// has given.
void supersede_later(std::int64_t step, const std::vector<Copy>& copies, bool owns_local_copies, const Peers& peers,
                     const Warn& warn) {
  for (const Copy& copy : copies) {
    if (copy.candidate.step <= step || !(copy.local ? owns_local_copies : peers.rank() == 0)) continue;
    guarded(copy, warn, [&] { supersede_and_report(copy, warn); });
  }
}

void keep(const CheckpointPlaces& places, const RunIdentity& run, const Warn& warn) {
  try {
    write_run_identity(places.run_file, run);
  } catch (const std::system_error& error) {
    warn(std::string(error.what()) +
         "; without this file, a later start may resume from a checkpoint of an older run in this folder");
  }
}

// Throws UsageError on all ranks if the training data of any rank differs from the data with which the run was started. All
// ranks must call this.
void refuse_other_data(const RunIdentity& known, const std::string& data, const Options& options, const Peers& peers) {
  const bool other = !known.data.empty() && known.data != data;
  const bool any_other = peers.largest(other ? 1 : 0) != 0;
  const bool accepted = peers.largest(options.data_changed ? 1 : 0) != 0;
  if (!any_other || accepted) return;
  throw UsageError("the data differs from the data that this run started with: " +
                   (other ? known.data + " then, " + data + " now" : "the error of another node has the details") +
                   ". Check data.dir" + (data.find(", model ") == std::string::npos ? "" : " and model.path") +
                   "; if the data was changed on purpose, use --data-changed to resume with it, or --fresh to start over");
}

// Returns the identity of the run. It changes only if the user has requested a start from step 0 or from a path (`ordered`).
// Otherwise it stays the same even if no rank has a checkpoint: a node that is now absent may have checkpoints of this run. All
// ranks must call this.
RunIdentity identity_of_run(const RunIdentity& known, const Agreed& agreed, bool ordered, const Peers& peers) {
  if (!ordered && known.known()) return known;
  if (!ordered && !agreed.run.empty()) return {.id = agreed.run};
  return broadcast_identity(0, agreed.step == kNone ? new_run() : new_run_from(known, agreed.run, agreed.step), peers);
}

}  // namespace

ResumeChoice choose_resume(const Options& options, int restart_count, const CheckpointPlaces& places, const std::string& data,
                           const Peers& peers, const Warn& warn, const CheckpointState& into) {
  VisibleCheckpoints seen(places);
  if (places.owns_node_disk && !seen.list_error().empty())
    warn(seen.list_error() + "; checkpoint copies on the local disk of this node are ignored");
  const ResumeRequest order = agree_on_resume_option(options, peers);
  const RunIdentity known = known_identity(seen, places, peers, warn);
  const bool use_newest = order.resume == Options::Resume::kAuto || restart_count > 0;

  Agreed agreed;
  if (use_newest) agreed = load_newest(seen, known, places, into, peers);
  const bool continues = agreed.step != kNone;
  if (!continues && order.resume == Options::Resume::kPath) agreed = agree_on_path(order.path, into, peers, warn);
  const bool compare_data = peers.smallest(data.empty() ? 0 : 1) != 0;
  if (compare_data && agreed.step != kNone) refuse_other_data(known, data, options, peers);
  ResumeChoice choice{.from = {}, .run = identity_of_run(known, agreed, !use_newest, peers)};
  choice.run.data = peers.from_rank_0(compare_data ? data : known.data);
  if (use_newest && known.known() && agreed.step == kNone && peers.rank() == 0) {
    warn("no rank has a checkpoint of this run: training starts at step 0");
  }

  // The identity must be written before the checkpoints are renamed below. If a crash prevents the renames, the identities are
  // compared when the run starts the next time. This comparison shows that the checkpoints belong to another run.
  if (peers.rank() == 0) keep(places, choice.run, warn);
  if (use_newest) {
    if (places.owns_node_disk) rename_unused(seen.judged(Which::kLocal), agreed, warn);
    if (peers.rank() == 0) {
      // Rank 0 may have loaded the copy on its node's disk. Then no rank has verified the checkpoint in the run directory,
      // which users and other nodes may load later.
      if (agreed.path) seen.verify_shared(agreed.step, agreed.content, *agreed.path);
      const std::vector<Copy> copies = seen.judged(Which::kRunDirectory);
      rename_unused(copies, agreed, warn);
      if (continues) repair_latest_of(copies, agreed, warn);
    }
  } else {
    supersede_later(agreed.step, seen.listed(), places.owns_node_disk, peers, warn);
  }
  peers.barrier();  // after the barrier, all renames are done, and other ranks may read the folders
  if (peers.rank() != 0 && places.owns_node_disk) keep(places, choice.run, warn);
  if (agreed.step != kNone) {
    choice.from = ResumeFrom{.step = agreed.step,
                             .holders = std::move(agreed.holders),
                             .path = std::move(agreed.path),
                             .saved = std::move(agreed.saved)};
  }
  return choice;
}

}  // namespace ddprun::trainer
