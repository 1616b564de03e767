// Simulates one rank of the job (simulated_job.hpp). A rank has values, a StepProgress, and the point that it has reached in a
// step or in a regroup. Each call to act() performs one action. A collective takes two actions: the rank enters it, and leaves
// it when all ranks of its process group have entered.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/commit/regroup_actions.hpp"
#include "tests/trainer/commit/simulated_values.hpp"
#include "trainer/commit/commit_rule.hpp"

namespace ddprun::trainer::simulation {

struct AgreedValues {
  std::int64_t step = kNoStep;
  Hash values = 0;
  bool evaluated = false;
};

struct SentMessage {
  AgreedValues agreed{};
  std::vector<Hash> elements{};
};

struct Board {
  int entered = 0;
  std::vector<Hash> tokens{};
  Values values{};
};

// The communication state of one process group.
struct Group {
  int world = 0;
  const StateLayout* layout = nullptr;
  std::int64_t layout_number = 0;
  std::deque<Board> boards{};  // one board for each collective of the group, in order
  // messages in flight; the key is the pair of sender and receiver
  std::map<std::pair<int, int>, std::deque<SentMessage>> channels{};
};

// Data that all ranks share.
struct World {
  const Model* model = nullptr;
  History* history = nullptr;
  std::vector<const StateLayout*> layouts{};  // the index is the layout number
  bool gathers_blocks = false;                // true if parameters are sharded: fsdp and hybrid
  bool publishes = false;  // true if each rank sends the parameters that it updated to the other ranks: zero1 and zero2
  bool keeps_gradients = true;
  std::int64_t last_step = 0;
  std::int64_t checkpoint = 0;  // step of the newest checkpoint
  Mistake mistake = Mistake::kNone;
  std::string violation{};  // description of the first violation; empty if there is none
};

class SimulatedRank {
 public:
  SimulatedRank(World& world, int rank, int node);

  bool can_act(const Group& group) const;
  void act(Group& group, std::mt19937_64& random, bool may_fail_update);
  // Leaves the process group. A collective that is running stays incomplete, as after the loss of another rank.
  void interrupt(std::mt19937_64& random);
  StepReport report() const;
  // Starts the actions that a decision requires of this rank. `rank` is the rank in the new process group.
  void follow(const CommitDecision& decision, int rank, const Group& group);
  bool is_done() const { return actions_.empty() && point_ == Point::kBegin && truth_.made == world_.last_step; }
  bool trains() const { return actions_.empty(); }
  std::string where() const;

  // The true state of a rank, which the oracle uses. A planted mistake does not change it.
  struct Truth {
    std::int64_t made = kNoStep;       // step of the pieces that this rank updates itself; kNoStep after a failed update
    std::int64_t gradients = kNoStep;  // the step whose summed gradients this rank has
    std::optional<LayoutPlace> place{};
    std::optional<LayoutPlace> next{};
  };
  const Truth& truth() const { return truth_; }
  const AgreedValues& agreed() const { return agreed_; }
  int rank() const { return rank_; }
  int node() const { return node_; }

 private:
  enum class Point {
    kBegin,
    kEnterGather,
    kLeaveGather,
    kEnterReduce,
    kLeaveReduce,
    kEnterAgree,
    kLeaveAgree,
    kUpdate,
    kEnterPublish,
    kLeavePublish
  };

  const StateLayout& own_layout() const;  // returns the layout in truth_.place
  Board& board(Group& group) const;
  bool all_entered(const Group& group) const;
  void train(Group& group, std::mt19937_64& random, bool may_fail_update);
  void regroup(Group& group, const RegroupAction& action);
  void begin_step();
  void enter_gather(Group& group);
  void enter_reduce(Group& group);
  void leave_reduce(Group& group);
  void leave_agree();
  void update(std::mt19937_64& random, bool may_fail);
  void finish_step();
  void leave_publish(Group& group);
  void apply_update(bool mirrors_too);
  void take_values(const AgreedValues& values);
  void complete_or_return();
  void prepare(const Group& group);
  void finish(const Group& group);
  void load(const Group& group);
  void restore_buffers();
  void violated(const std::string& text) const;
  Values& target();

  World& world_;
  int rank_;
  int node_;
  StepProgress progress_;
  Values values_;  // values of the elements that the layout in truth_.place assigns to this rank
  Values aside_;   // receives new values while the old values in values_ must be kept
  Values next_;    // values for the layout in truth_.next, or for the layout that is being received
  // copy of values_ that was made before the forward pass; only the buffers in it are used
  std::optional<Values> buffers_before_;
  Hash gradients_ = 0;
  Hash seen_ = 0;  // digest of the weights that the forward pass has used
  AgreedValues agreed_;
  std::optional<AgreedValues> values_aside_;  // agreed values that this rank has received, but may not use yet
  Truth truth_;
  Point point_ = Point::kBegin;
  std::size_t collectives_ = 0;  // number of collectives of this process group from which the rank has returned
  bool entered_ = false;
  // The following members are used only during a regroup.
  std::deque<RegroupAction> actions_;
  bool completes_ = false;
  bool receives_aside_ = false;
  bool receives_next_ = false;
};

}  // namespace ddprun::trainer::simulation
