// Implementation of resume.hpp.
#include "trainer/resume/resume.hpp"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {
namespace {

using nlohmann::json;
using Copy = VisibleCheckpoints::Copy;
using Which = VisibleCheckpoints::Which;

constexpr std::int64_t kNone = -1;

// The checkpoint from which all ranks continue. `path` is set if this rank can read it.
struct Agreed {
  std::int64_t step = kNone;
  std::string content;
  std::string run;
  std::vector<int> holders;
  std::optional<std::filesystem::path> path;
  std::shared_ptr<const CheckpointState> saved{};  // content of `path`
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

// ---- what was asked for ----

struct Order {
  Options::Resume resume = Options::Resume::kAuto;
  std::filesystem::path path;  // kPath: this rank's path, else that of the rank that asks
};

// Agents of other nodes may have been started with other options. Only rank 0's --fresh counts.
Order agree_on_order(const Options& options, const Peers& peers) {
  const auto number = [](Options::Resume resume) { return static_cast<std::int64_t>(resume); };
  const std::vector<std::int64_t> words = peers.from_all(number(options.resume));
  if (words.front() == number(Options::Resume::kNever)) return {.resume = Options::Resume::kNever, .path = {}};
  const int asks = lowest_with(words, number(Options::Resume::kPath));
  if (asks == peers.world()) return {};
  const std::string theirs = peers.from(asks, options.resume_from.string());
  const bool own = options.resume == Options::Resume::kPath;
  return {.resume = Options::Resume::kPath, .path = own ? options.resume_from : std::filesystem::path(theirs)};
}

// ---- whose run it is ----

RunIdentity told(int source, const RunIdentity& run, const Peers& peers) {
  return run_identity_of(peers.from(source, text_of(run)));
}

// The identity that is known before a checkpoint is chosen; unknown if the newest copy decides. Collective.
RunIdentity known_identity(VisibleCheckpoints& seen, const CheckpointPlaces& places, const Peers& peers, const Warn& warn) {
  enum : std::int64_t { kKnowsNothing, kKnows, kHasAnOldVersions };
  RunIdentity own;
  std::int64_t knowledge = kKnowsNothing;
  try {
    if (const auto kept = read_run_identity(places.run_file)) own = *kept, knowledge = kKnows;
  } catch (const UsageError& error) {
    if (peers.rank() == 0 || places.of_node) warn(std::string(error.what()) + "; the checkpoints tell whose they are");
  }
  if (peers.rank() == 0 && knowledge == kKnowsNothing) {
    if (const Copy* const newest = seen.newest_valid([](const Copy& copy) { return !copy.local; })) {
      own.id = newest->candidate.run;
      knowledge = own.known() ? kKnows : kHasAnOldVersions;
    }
  }
  const std::vector<std::int64_t> all = peers.from_all(knowledge);
  const int source = all.front() == kHasAnOldVersions ? peers.world() : lowest_with(all, kKnows);
  return source == peers.world() ? RunIdentity{} : told(source, own, peers);
}

// ---- the newest anywhere ----

std::string names_of(const std::vector<Copy>& copies) {
  std::string names;
  for (const Copy& copy : copies) {
    const Candidate& candidate = copy.candidate;
    names += "\n  " + candidate.path.string() + ": " +
             (candidate.problem.empty() ? "valid, but of another training" : candidate.problem);
  }
  return names.empty() ? "\n  (none here; ranks of other nodes name theirs)" : names;
}

// Empty if there is no checkpoint, not even a bad one. Collective.
Agreed agree_on_newest(VisibleCheckpoints& seen, const RunIdentity& run, const CheckpointPlaces& places, const Peers& peers) {
  const Copy* const own =
      seen.newest_valid([&](const Copy& copy) { return !run.known() || run.has(copy.candidate.run, copy.candidate.step); });
  const std::vector<std::int64_t> steps = peers.from_all(own != nullptr ? own->candidate.step : kNone);
  Agreed agreed{.step = *std::max_element(steps.begin(), steps.end()), .content = {}, .run = {}, .holders = {}, .path = {}};
  if (agreed.step == kNone) {  // no rank has a valid checkpoint; each has judged all that it sees
    const std::vector<Copy> all = seen.judged(Which::kAll);
    const bool bad = std::any_of(all.begin(), all.end(), [](const Copy& copy) { return !copy.candidate.problem.empty(); });
    if (peers.largest(bad ? 1 : 0) == 0) return {};
    throw BadCheckpointError(
        "no checkpoint in " + places.run_directory.string() + " can be used, and starting over would lose the run:" +
        names_of(all) + "\nRestore one of them, or start anew with --fresh (which keeps the old directory under another name)");
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

// Loads a checkpoint in one read, which also verifies its checksums. Returns null and the problem if it is unusable.
std::shared_ptr<const CheckpointState> load(const std::filesystem::path& path, std::string& problem) {
  try {
    return std::make_shared<const CheckpointState>(load_checkpoint(path));
  } catch (const UsageError& error) {
    problem = error.what();
    return nullptr;
  }
}

// Agrees on the newest checkpoint; all ranks that have it load it. If one copy turns out bad, all ranks choose again without
// it. Collective.
Agreed load_newest(VisibleCheckpoints& seen, const RunIdentity& run, const CheckpointPlaces& places, const Peers& peers) {
  std::shared_ptr<const CheckpointState> saved;
  std::optional<std::filesystem::path> saved_from;
  for (;;) {
    Agreed agreed = agree_on_newest(seen, run, places, peers);
    if (agreed.step == kNone) return agreed;
    std::string problem;
    if (saved_from != agreed.path) {
      saved.reset();  // frees the memory before the next one is loaded
      saved_from = agreed.path;
      if (agreed.path) saved = load(*agreed.path, problem);
    }
    if (!problem.empty()) seen.mark(*agreed.path, problem);
    if (peers.largest(problem.empty() ? 0 : 1) == 0) {
      agreed.saved = std::move(saved);
      return agreed;
    }
  }
}

// ---- the one that was named ----

Agreed agree_on_path(const std::filesystem::path& path, const Peers& peers, const Warn& warn) {
  std::error_code unknown;
  Candidate candidate{.step = kNone, .path = path, .problem = {}, .content = {}, .run = {}};
  std::shared_ptr<const CheckpointState> saved;
  if (std::filesystem::exists(path, unknown)) {
    judge_checkpoint(candidate);
    if (candidate.problem.empty()) saved = load(path, candidate.problem);
  } else {
    candidate.problem = path.string() + " is not there";
  }
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
    throw UsageError("--resume " + path.string() + " is not the same checkpoint for all ranks (here: " +
                     (has ? "step " + std::to_string(candidate.step) : "none") + ")");
  }
  if (has) {
    agreed.path = path;
    agreed.saved = std::move(saved);
  } else if (std::filesystem::exists(path, unknown)) {
    warn("--resume: " + candidate.problem + "; the state comes from rank " + std::to_string(first));
  }
  return agreed;
}

// ---- taking the others out of the way ----

void supersede_and_say(const Copy& copy, const Warn& warn) {
  const std::filesystem::path target = supersede(copy.candidate.path);
  warn(copy.candidate.path.string() + " is not what this run goes on from; renamed to " + target.filename().string());
}

// A missing checkpoint was removed by another process: an older start that has not ended, or another node of the same machine
// for copies on a node's disk. Nothing is left to rename then.
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

// Renames bad checkpoints, and valid ones here that the ranks do not continue from. Otherwise a save of the same step would
// find it "already published".
void clear_away(const std::vector<Copy>& copies, const Agreed& agreed, const Warn& warn) {
  for (const Copy& copy : copies) {
    const Candidate& candidate = copy.candidate;
    const bool other = candidate.step > agreed.step || (candidate.step == agreed.step && candidate.content != agreed.content);
    guarded(copy, warn, [&] {
      if (!candidate.problem.empty()) {
        const std::filesystem::path aside = set_aside(candidate);
        warn("checkpoint " + candidate.path.string() + " is bad: " + candidate.problem + "; set aside as " +
             aside.filename().string());
      } else if (other) {
        supersede_and_say(copy, warn);
      }
    });
  }
}

// Repairs `latest` of the run directory. Copies on a node's own disk have no `latest` that is read.
void mend_latest_of(const std::vector<Copy>& copies, const Agreed& agreed, const Warn& warn) {
  for (const Copy& copy : copies) {
    if (copy.candidate.step != agreed.step || copy.candidate.content != agreed.content) continue;
    try {
      mend_latest(copy.candidate.path);
    } catch (const std::system_error& error) {
      warn(std::string(error.what()) + "; it is for people only, and the run goes on");
    }
    return;
  }
  warn("the run directory has no valid checkpoint of step " + std::to_string(agreed.step) + ": the run goes on from " +
       (agreed.path ? "the copies on the nodes' own disks"
                    : "that of rank " + std::to_string(agreed.holders.front()) + ", which sends it"));
}

// For an ordered start from an earlier step than the newest, or from step 0. The renamed checkpoints need not be valid.
void clear_away_after(std::int64_t step, const std::vector<Copy>& copies, bool looks_after_local, const Peers& peers,
                      const Warn& warn) {
  for (const Copy& copy : copies) {
    if (copy.candidate.step <= step || !(copy.local ? looks_after_local : peers.rank() == 0)) continue;
    guarded(copy, warn, [&] { supersede_and_say(copy, warn); });
  }
}

void keep(const CheckpointPlaces& places, const RunIdentity& run, const Warn& warn) {
  try {
    keep_run_identity(places.run_file, run);
  } catch (const std::system_error& error) {
    warn(std::string(error.what()) +
         "; should checkpoints of a training that was started over turn up later, they can't be told");
  }
}

// Collective: a difference on one node stops all of them.
void refuse_other_data(const RunIdentity& known, const std::string& data, const Options& options, const Peers& peers) {
  const bool other = !known.data.empty() && known.data != data;
  const bool any_other = peers.largest(other ? 1 : 0) != 0;
  const bool accepted = peers.largest(options.data_changed ? 1 : 0) != 0;
  if (!any_other || accepted) return;
  throw UsageError(
      "the data is not what this run began with: " + (other ? known.data + " then, " + data + " now" : "on another node") +
      ". Check data.dir" + (data.find(", model ") == std::string::npos ? "" : " and model.path") +
      "; if it was changed on purpose, --data-changed goes on with it from the newest checkpoint, and "
      "--fresh begins anew");
}

// The identity changes only by order. If a node is absent and the others start over without it, its checkpoints still belong to
// this run.
RunIdentity identity_of_beginning(const RunIdentity& known, const Agreed& agreed, bool ordered, const Peers& peers) {
  if (!ordered && known.known()) return known;
  if (!ordered && !agreed.run.empty()) return {.id = agreed.run};
  return told(0, agreed.step == kNone ? new_run() : new_run_from(known, agreed.run, agreed.step), peers);
}

}  // namespace

Beginning choose_resume(const Options& options, int restart_count, const CheckpointPlaces& places, const std::string& data,
                        const Peers& peers, const Warn& warn) {
  VisibleCheckpoints seen(places);
  if (places.of_node && !seen.trouble().empty()) warn(seen.trouble() + "; copies on this node's disk are not looked at");
  const Order order = agree_on_order(options, peers);
  const RunIdentity known = known_identity(seen, places, peers, warn);
  const bool looks_for_newest = order.resume == Options::Resume::kAuto || restart_count > 0;

  Agreed agreed;
  if (looks_for_newest) agreed = load_newest(seen, known, places, peers);
  const bool goes_on = agreed.step != kNone;
  if (!goes_on && order.resume == Options::Resume::kPath) agreed = agree_on_path(order.path, peers, warn);
  const bool looks_at_data = peers.smallest(data.empty() ? 0 : 1) != 0;
  if (looks_at_data && agreed.step != kNone) refuse_other_data(known, data, options, peers);
  Beginning beginning{.from = {}, .run = identity_of_beginning(known, agreed, !looks_for_newest, peers)};
  beginning.run.data = peers.from_rank_0(looks_at_data ? data : known.data);
  if (looks_for_newest && known.known() && agreed.step == kNone && peers.rank() == 0) {
    warn("no rank has a checkpoint of this run: training begins at step 0");
  }

  // Write the identity first. If a crash prevents the renames below, the next start still recognises those checkpoints as
  // another run's.
  if (peers.rank() == 0) keep(places, beginning.run, warn);
  if (looks_for_newest) {
    if (places.of_node) clear_away(seen.judged(Which::kLocal), agreed, warn);
    if (peers.rank() == 0) {
      // If all ranks have loaded copies on their nodes, none has verified the copy in the run directory. Users and other nodes
      // would continue from that one.
      if (agreed.path) seen.verify_shared(agreed.step, agreed.content, *agreed.path);
      const std::vector<Copy> copies = seen.judged(Which::kRunDirectory);
      clear_away(copies, agreed, warn);
      if (goes_on) mend_latest_of(copies, agreed, warn);
    }
  } else {
    clear_away_after(agreed.step, seen.listed(), places.of_node, peers, warn);
  }
  peers.meet();  // no rank reads the folder before this
  if (peers.rank() != 0 && places.of_node) keep(places, beginning.run, warn);
  if (agreed.step != kNone) {
    beginning.from = ResumeFrom{.step = agreed.step,
                                .holders = std::move(agreed.holders),
                                .path = std::move(agreed.path),
                                .saved = std::move(agreed.saved)};
  }
  return beginning;
}

}  // namespace ddprun::trainer
