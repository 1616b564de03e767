#include "tests/trainer/commit/simulated_job.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <set>
#include <utility>

#include "tests/trainer/commit/commit_oracle.hpp"
#include "tests/trainer/layout/sample_models.hpp"

namespace ddprun::trainer::simulation {
namespace {

constexpr int kMaxWorld = 8;
constexpr std::int64_t kMaxActions = 20000;
constexpr std::int64_t kElementBytes = 4;  // size of an element; the alignment has the same value, so that no piece is padded

const char* text_of(CommitOutcome outcome) {
  switch (outcome) {
    case CommitOutcome::kReturn:
      return "return";
    case CommitOutcome::kComplete:
      return "complete";
    case CommitOutcome::kCheckpoint:
      return "checkpoint";
  }
  return "";
}

class SimulatedJob {
 public:
  explicit SimulatedJob(const CommitScenario& scenario)
      : scenario_(scenario), random_(scenario.seed), shapes_(random_model(random_, 4)) {
    shapes_.tensors.push_back({.name = "weight", .shape = {3, 4}});  // ensures that a trained tensor exists
    const int world = 2 + up_to(kMaxWorld - 2);
    parallelism_ = random_parallelism(random_, world);
    nodes_ = random_nodes(random_, world);
    add_layout(layout_now());
    model_ = std::make_unique<Model>(layouts_.front()->tensors);
    history_ = std::make_unique<History>(*model_);
    const StrategyKind strategy = parallelism_.strategy;
    world_.model = model_.get();
    world_.history = history_.get();
    world_.gathers_blocks = strategy == StrategyKind::kFsdp || strategy == StrategyKind::kHybrid;
    world_.publishes = strategy == StrategyKind::kZero1 || strategy == StrategyKind::kZero2;
    world_.keeps_gradients = strategy != StrategyKind::kDdp || up_to(1) == 0;
    world_.last_step = 3 + up_to(3);
    world_.mistake = scenario.mistake;
    losses_ = 1 + up_to(3);
  }

  CommitResult run() {
    story("seed " + std::to_string(scenario_.seed) + ": " + name_of(parallelism_.strategy) +
          (parallelism_.mirror ? " mirrored" : "") + ", shard_size " + std::to_string(parallelism_.shard_size) + ", ranks " +
          std::to_string(nodes_.size()));
    try {
      for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
        ranks_.push_back(std::make_unique<SimulatedRank>(world_, static_cast<int>(rank), nodes_[rank]));
      }
      regroup();
      while (world_.violation.empty() && !is_done()) advance();
    } catch (const std::exception& error) {
      world_.violation = error.what();
    }
    result_.violation = world_.violation;
    if (!result_.violation.empty()) story("VIOLATION " + result_.violation);
    return std::move(result_);
  }

 private:
  int up_to(int last) { return std::uniform_int_distribution(0, last)(random_); }
  void story(const std::string& line) {
    if (scenario_.trace) result_.story.push_back(line);
  }
  StateLayout layout_now() const { return layout_for(shapes_, parallelism_, nodes_, kElementBytes); }
  void add_layout(StateLayout layout) {
    layouts_.push_back(std::make_unique<StateLayout>(std::move(layout)));
    world_.layouts.push_back(layouts_.back().get());
  }
  bool is_done() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank && rank->is_done(); });
  }

  // Performs one action of a rank, or injects a failure.
  void advance() {
    if (++result_.actions > kMaxActions) {
      world_.violation = "the job does not end";
      return;
    }
    if (breaking_ && --until_break_ <= 0) {
      regroup();
      return;
    }
    std::vector<SimulatedRank*> able;
    for (const auto& rank : ranks_) {
      if (rank && rank->can_act(group_)) able.push_back(rank.get());
    }
    if (able.empty()) {
      if (!breaking_) world_.violation = "no rank can continue";
      until_break_ = 0;
      return;
    }
    SimulatedRank& rank = *able[static_cast<std::size_t>(up_to(static_cast<int>(able.size()) - 1))];
    const std::string before = scenario_.trace ? rank.where() : "";
    const bool trained = rank.trains();
    rank.act(group_, random_, losses_ > 0 && !breaking_);
    if (scenario_.trace) story("  rank " + std::to_string(rank.rank()) + ": " + before);
    if (rank.truth().place && rank.truth().made == kNoStep && rank.trains()) {
      story("rank " + std::to_string(rank.rank()) + ": its update fails");
      ++result_.failed_updates;
      --losses_;
      is_single_loss_ = std::all_of(ranks_.begin(), ranks_.end(), [](const auto& one) { return one->trains(); });
      break_group();
    }
    note_checkpoint();
    // A regroup has many actions. They are counted only if the next failure must occur in a regroup. If not, only training
    // actions are counted.
    if (breaking_ || losses_ == 0 || (!loss_in_regroup_ && !trained)) return;
    if (--until_loss_ <= 0) lose();
  }

  // Saves a checkpoint at each even step that all ranks have finished.
  void note_checkpoint() {
    std::int64_t finished = world_.last_step;
    for (const auto& rank : ranks_) finished = std::min(finished, rank && rank->trains() ? rank->truth().made - 1 : 0);
    if (finished > world_.checkpoint) world_.checkpoint = finished / 2 * 2;
  }

  void break_group() {
    breaking_ = true;
    until_break_ = up_to(2 * static_cast<int>(ranks_.size()));
  }

  void lose() {
    --losses_;
    const int world = static_cast<int>(ranks_.size());
    std::set<int> victims;
    const int kind = up_to(9);
    const int first = up_to(world - 1);
    if (kind < 5) victims = {first};
    if (kind == 5) victims = {first, up_to(world - 1)};
    if (kind == 6) victims = {first, (first + 1) % world};
    if (kind == 7) {
      for (int rank = 0; rank < world; ++rank) {
        if (nodes_[static_cast<std::size_t>(rank)] == nodes_[static_cast<std::size_t>(first)]) victims.insert(rank);
      }
    }
    if (kind == 8) victims = {first, up_to(world - 1), up_to(world - 1)};
    // For the other values of `kind`, no rank is lost. The process group breaks because the number of ranks changes.
    bool interrupts = false;
    for (const auto& rank : ranks_) interrupts |= !rank->trains();
    result_.interrupted += interrupts ? 1 : 0;
    is_single_loss_ = victims.size() == 1 && !interrupts;
    result_.double_losses += victims.size() > 1 ? 1 : 0;
    lost_ = victims.size();
    for (const int victim : victims) {
      std::unique_ptr<SimulatedRank>& rank = ranks_[static_cast<std::size_t>(victim)];
      story("rank " + std::to_string(victim) + " is lost: " + rank->where());
      rank.reset();
    }
    break_group();
  }

  // Returns true if two ranks can provide each piece of the state. The function uses only the definitions of the strategies
  // and not the layouts.
  bool has_second_holders() const {
    const int world = static_cast<int>(ranks_.size());
    const bool has_replicas = parallelism_.strategy == StrategyKind::kDdp ||
                              (parallelism_.strategy == StrategyKind::kHybrid && parallelism_.shard_size < world);
    return world > 1 && (has_replicas || parallelism_.mirror);
  }

  // Chooses the ranks of the next process group and their order. Lost ranks are replaced or dropped, or ranks are added. The
  // number of ranks stays a multiple of world_unit(), as the strategy requires.
  void choose_members() {
    const int unit = world_unit(parallelism_, 1);
    const auto survivors = std::count_if(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank != nullptr; });
    const int policy = up_to(9);
    if (policy < 2 && survivors > 0 && survivors % unit == 0) {
      std::erase(ranks_, nullptr);
    } else if (policy == 2) {
      for (int more = 0; more < unit && static_cast<int>(ranks_.size()) + unit - more <= kMaxWorld; ++more) {
        ranks_.insert(ranks_.begin() + up_to(static_cast<int>(ranks_.size())), nullptr);
      }
      while (static_cast<int>(ranks_.size()) % unit != 0) ranks_.push_back(nullptr);
    }
    const std::vector<int> former = std::exchange(nodes_, {});
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const bool moves = up_to(4) == 0;
      const int node = ranks_[i] ? ranks_[i]->node() : i < former.size() && !moves ? former[i] : up_to(2);
      nodes_.push_back(node);
      if (!ranks_[i]) ranks_[i] = std::make_unique<SimulatedRank>(world_, static_cast<int>(i), node);
    }
  }

  // Returns true if all ranks can continue to use the newest layout of the state. If they cannot, the regroup adds a layout.
  bool newest_layout_fits(const StateLayout& now) const {
    const auto newest = static_cast<std::int64_t>(layouts_.size()) - 1;
    if (*layouts_.back() != now) return false;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      for (const std::optional<LayoutPlace>& place : {ranks_[i]->truth().place, ranks_[i]->truth().next}) {
        if (place && place->layout_number == newest && place->rank != static_cast<int>(i)) return false;
      }
    }
    return true;
  }

  void regroup() {
    const bool is_start = result_.actions == 0;
    for (const auto& rank : ranks_) {
      if (rank == nullptr) continue;
      result_.broken_gathers += rank->where() == "leave publish" ? 1 : 0;
      rank->interrupt(random_);
    }
    const bool must_survive = is_single_loss_ && has_second_holders();
    is_single_loss_ = false;
    if (!is_start) choose_members();
    StateLayout now = layout_now();
    if (!newest_layout_fits(now)) {
      add_layout(std::move(now));
      ++result_.new_layouts;
    }
    group_ = {.world = static_cast<int>(ranks_.size()),
              .layout = layouts_.back().get(),
              .layout_number = static_cast<std::int64_t>(layouts_.size()) - 1};
    CommitDecision decision = decide();
    apply_mistake(decision);
    if (!is_start) {
      ++result_.regroups;
      result_.returns += decision.outcome == CommitOutcome::kReturn ? 1 : 0;
      result_.completions += decision.outcome == CommitOutcome::kComplete ? 1 : 0;
      result_.checkpoints += decision.outcome == CommitOutcome::kCheckpoint ? 1 : 0;
    }
    report_regroup(decision);
    judge_decision(world_, ranks_, decision);
    if (must_survive && decision.outcome == CommitOutcome::kCheckpoint && world_.violation.empty()) {
      world_.violation = "one loss returns to the checkpoint, although each piece has two holders: " + decision.reason;
    }
    for (std::size_t i = 0; i < ranks_.size(); ++i) ranks_[i]->follow(decision, static_cast<int>(i), group_);
    breaking_ = false;
    loss_in_regroup_ = up_to(2) == 0;
    until_loss_ = 1 + up_to((loss_in_regroup_ ? 8 : 12) * group_.world);
  }

  CommitDecision decide() const {
    std::vector<StepReport> reports;
    for (const auto& rank : ranks_) reports.push_back(rank->report());
    std::vector<NumberedLayout> known;
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      const auto layout_number = static_cast<std::int64_t>(i);
      const bool is_named = std::any_of(reports.begin(), reports.end(), [&](const StepReport& one) {
        return (one.place && one.place->layout_number == layout_number) ||
               (one.next && one.next->layout_number == layout_number);
      });
      if (is_named) known.push_back({.layout_number = layout_number, .layout = layouts_[i].get()});
    }
    return decide_commit(reports, known, *group_.layout);
  }

  void apply_mistake(CommitDecision& decision) const {
    switch (scenario_.mistake) {
      case Mistake::kNoRankCompletes:
        decision.complete.clear();
        return;
      case Mistake::kOneTransferIsSkipped:
        if (!decision.transfers.empty()) decision.transfers.pop_back();
        return;
      case Mistake::kTwoLossesAreTooMany:
        if (lost_ > 1) decision = {.reason = "two ranks are lost"};
        return;
      case Mistake::kLosesTheEvaluation:
        std::erase_if(decision.values_to,
                      [&](int rank) { return ranks_[static_cast<std::size_t>(rank)]->agreed().step == decision.step; });
        return;
      default:
        return;
    }
  }

  void report_regroup(const CommitDecision& decision) {
    if (!scenario_.trace) return;
    std::string nodes;
    for (const int node : nodes_) nodes += " " + std::to_string(node);
    story("regroup " + std::to_string(result_.regroups) + ", layout " + std::to_string(group_.layout_number) + ", nodes" +
          nodes);
    for (const auto& rank : ranks_) {
      const StepReport report = rank->report();
      const auto place = [](const std::optional<LayoutPlace>& one) {
        return one ? std::to_string(one->layout_number) + "/" + std::to_string(one->rank) : "none";
      };
      story("  report: place " + place(report.place) + ", next " + place(report.next) + ", made " +
            std::to_string(report.made) + ", received " + std::to_string(report.received) + ", gradients " +
            std::to_string(report.gradients) + ", agreed " + std::to_string(report.agreed));
    }
    std::string complete;
    for (const int rank : decision.complete) complete += " " + std::to_string(rank);
    story("  decision: " + std::string(text_of(decision.outcome)) + ", step " + std::to_string(decision.step) +
          ", complete:" + complete + ", transfers " + std::to_string(decision.transfers.size()) +
          (decision.reason.empty() ? "" : ", ") + decision.reason);
  }

  CommitScenario scenario_;
  std::mt19937_64 random_;
  ModelShapes shapes_;
  Parallelism parallelism_;
  std::vector<int> nodes_;                             // the node of each rank; the index is the rank in the process group
  std::vector<std::unique_ptr<StateLayout>> layouts_;  // the index is the layout number
  std::unique_ptr<Model> model_;
  std::unique_ptr<History> history_;
  World world_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;  // the index is the rank; null if the rank is lost
  Group group_;
  int losses_ = 0;  // number of failures that are still to be injected
  int until_loss_ = 0;
  bool loss_in_regroup_ = false;
  bool breaking_ = false;  // the process group is about to break; the survivors have not detected it yet
  int until_break_ = 0;
  bool is_single_loss_ = false;  // the last failure affected one rank or one update, and was not during a regroup
  std::size_t lost_ = 0;         // number of ranks that the last failure affected
  CommitResult result_;
};

}  // namespace

CommitResult simulate_job(const CommitScenario& scenario) {
  return SimulatedJob(scenario).run();
}

}  // namespace ddprun::trainer::simulation
