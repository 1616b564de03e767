#include "tests/trainer/commit/simulated_rank.hpp"

#include <algorithm>

namespace ddprun::trainer::simulation {
namespace {

constexpr Hash kGarbage = 0xbad;

}  // namespace

SimulatedRank::SimulatedRank(World& world, int rank, int node)
    : world_(world), rank_(rank), node_(node), progress_(world.keeps_gradients), values_(world.model->absent()) {}

void SimulatedRank::violated(const std::string& text) const {
  if (world_.violation.empty()) world_.violation = "rank " + std::to_string(rank_) + ": " + text;
}

const StateLayout& SimulatedRank::own_layout() const {
  return *world_.layouts[static_cast<std::size_t>(truth_.place->layout_number)];
}

std::string SimulatedRank::where() const {
  static constexpr const char* kPoints[] = {"begin",       "enter gather", "leave gather", "enter reduce",  "leave reduce",
                                            "enter agree", "leave agree",  "update",       "enter publish", "leave publish"};
  if (actions_.empty()) return kPoints[static_cast<int>(point_)];
  return "regroup: " + name_of(actions_.front().kind);
}

Board& SimulatedRank::board(Group& group) const {
  while (group.boards.size() <= collectives_) group.boards.push_back({.values = world_.model->absent()});
  return group.boards[collectives_];
}

bool SimulatedRank::all_entered(const Group& group) const {
  return group.boards.size() > collectives_ && group.boards[collectives_].entered == group.world;
}

bool SimulatedRank::can_act(const Group& group) const {
  if (!actions_.empty()) {
    const RegroupAction& next = actions_.front();
    if (next.kind == RegroupAction::Kind::kLeaveBarrier) return all_entered(group);
    if (next.kind != RegroupAction::Kind::kReceiveValues && next.kind != RegroupAction::Kind::kReceive) return true;
    const auto found = group.channels.find({next.peer, rank_});
    return found != group.channels.end() && !found->second.empty();
  }
  switch (point_) {
    case Point::kBegin:
      return truth_.made != kNoStep && truth_.made < world_.last_step;
    case Point::kLeaveGather:
    case Point::kLeaveReduce:
    case Point::kLeaveAgree:
    case Point::kLeavePublish:
      return all_entered(group);
    default:
      return true;
  }
}

void SimulatedRank::act(Group& group, std::mt19937_64& random, bool may_fail_update) {
  if (actions_.empty()) {
    train(group, random, may_fail_update);
    return;
  }
  const RegroupAction action = actions_.front();
  actions_.pop_front();
  regroup(group, action);
}

// ---- The actions of a step ----

void SimulatedRank::train(Group& group, std::mt19937_64& random, bool may_fail_update) {
  switch (point_) {
    case Point::kBegin:
      begin_step();
      point_ = world_.gathers_blocks ? Point::kEnterGather : Point::kEnterReduce;
      return;
    case Point::kEnterGather:
      enter_gather(group);
      point_ = Point::kLeaveGather;
      return;
    case Point::kLeaveGather: {
      Values whole = values_;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        if (world_.model->has_role(i, StateRole::kParameter)) whole[i] = board(group).values[i];
      }
      seen_ = world_.model->gradients(truth_.made, whole);
      ++collectives_;
      point_ = Point::kEnterReduce;
      return;
    }
    case Point::kEnterReduce:
      enter_reduce(group);
      point_ = Point::kLeaveReduce;
      return;
    case Point::kLeaveReduce:
      leave_reduce(group);
      point_ = Point::kEnterAgree;
      return;
    case Point::kEnterAgree:
      ++board(group).entered;
      point_ = Point::kLeaveAgree;
      return;
    case Point::kLeaveAgree:
      leave_agree();
      // If gradients are not kept, no collective follows agree(). So the update cannot be interrupted, and this action
      // includes it.
      if (!world_.keeps_gradients) update(random, may_fail_update);
      return;
    case Point::kUpdate:
      update(random, may_fail_update);
      return;
    case Point::kEnterPublish:
      for_elements(
          own_layout(), [&](const StatePiece& piece) { return group.layout->first_holder(piece) == rank_; },
          [&](const StatePiece& piece, std::size_t e) { board(group).values[piece.tensor][e] = values_[piece.tensor][e]; });
      ++board(group).entered;
      point_ = Point::kLeavePublish;
      return;
    case Point::kLeavePublish:
      leave_publish(group);
      return;
  }
}

void SimulatedRank::begin_step() {
  const std::string wrong = wrong_value(own_layout(), truth_.place->rank, values_, world_.history->after(truth_.made));
  if (!wrong.empty()) violated("has a wrong value after step " + std::to_string(truth_.made) + ": " + wrong);
  progress_.begin_step();
  if (world_.mistake == Mistake::kForgetsAgreedValues) agreed_.values = kGarbage;
  truth_.gradients = kNoStep;
  buffers_before_ = values_;
}

void SimulatedRank::enter_gather(Group& group) {
  Board& gathered = board(group);
  for_elements(
      *group.layout,
      [&](const StatePiece& piece) {
        return group.layout->tensor_of(piece).role == StateRole::kParameter && group.layout->makes(piece, rank_);
      },
      [&](const StatePiece& piece, std::size_t e) {
        Hash& value = gathered.values[piece.tensor][e];
        if (value != 0 && value != values_[piece.tensor][e]) violated("two holders of a piece have different weights");
        value = values_[piece.tensor][e];
      });
  ++gathered.entered;
}

void SimulatedRank::enter_reduce(Group& group) {
  if (!world_.gathers_blocks) seen_ = world_.model->gradients(truth_.made, values_);
  world_.model->forward(values_);
  board(group).tokens.push_back(seen_);
  ++board(group).entered;
}

void SimulatedRank::leave_reduce(Group& group) {
  for (const Hash token : board(group).tokens) {
    if (token != seen_) violated("the forward passes of two ranks used different weights");
  }
  ++collectives_;
  gradients_ = seen_;
  truth_.gradients = truth_.made + 1;
  progress_.gradients_reduced();
}

void SimulatedRank::leave_agree() {
  ++collectives_;
  progress_.agree_passed();
  agreed_ = {.step = truth_.made + 1, .values = Model::agreed(gradients_)};
  point_ = Point::kUpdate;
}

void SimulatedRank::update(std::mt19937_64& random, bool may_fail) {
  progress_.begin_update();
  if (may_fail && random() % 16 == 0) {
    apply_update(random() % 2 == 0);
    truth_.made = kNoStep;
    point_ = Point::kBegin;
    for (std::vector<Hash>& tensor : values_) {
      if (!tensor.empty()) tensor[random() % tensor.size()] = kGarbage;
    }
    return;  // simulates an update that throws; the simulated job then breaks the process group
  }
  apply_update(true);
  progress_.updated();
  truth_.made = agreed_.step;
  buffers_before_.reset();
  if (world_.publishes) {
    point_ = Point::kEnterPublish;
    return;
  }
  progress_.published();
  finish_step();
}

void SimulatedRank::finish_step() {
  if (truth_.made % 2 == 1) {
    progress_.evaluated();
    agreed_.evaluated = true;
  }
  point_ = Point::kBegin;
}

void SimulatedRank::leave_publish(Group& group) {
  for_elements(
      *group.layout,
      [&](const StatePiece& piece) { return !group.layout->makes(piece, rank_) && group.layout->holds(piece, rank_); },
      [&](const StatePiece& piece, std::size_t e) { values_[piece.tensor][e] = board(group).values[piece.tensor][e]; });
  ++collectives_;
  progress_.published();
  finish_step();
}

void SimulatedRank::apply_update(bool mirrors_too) {
  const StateLayout& layout = own_layout();
  const int rank = truth_.place->rank;
  for_elements(
      layout,
      [&](const StatePiece& piece) {
        return world_.model->is_updated(piece.tensor) && layout.makes(piece, rank) &&
               (mirrors_too || layout.first_holder(piece) == rank);
      },
      [&](const StatePiece& piece, std::size_t e) {
        Hash& value = values_[piece.tensor][e];
        value = Model::updated(value, piece.tensor, static_cast<std::int64_t>(e), gradients_, agreed_.values);
      });
}

// ---- The actions of a regroup ----

void SimulatedRank::interrupt(std::mt19937_64& random) {
  if (actions_.empty() && point_ == Point::kLeavePublish) {
    const StateLayout& layout = own_layout();
    const int rank = truth_.place->rank;
    const Values& correct = world_.history->after(truth_.made);
    for_elements(
        layout, [&](const StatePiece& piece) { return layout.holds(piece, rank) && !layout.makes(piece, rank); },
        [&](const StatePiece& piece, std::size_t e) {
          const auto luck = random() % 3;
          if (luck < 2) values_[piece.tensor][e] = luck == 0 ? kGarbage : correct[piece.tensor][e];
        });
  }
  actions_.clear();
  values_aside_.reset();
  point_ = Point::kBegin;
  collectives_ = 0;
}

StepReport SimulatedRank::report() const {
  StepReport report = progress_.report();
  if (world_.mistake == Mistake::kUndoesBeforeTheDecision) report.gradients = kNoStep;
  if (world_.mistake == Mistake::kTrustsAnInterruptedGather) report.received = report.made;
  if (world_.mistake == Mistake::kTrustsAFailedUpdate && report.place && report.made == kNoStep) report.made = report.agreed;
  return report;
}

void SimulatedRank::follow(const CommitDecision& decision, int rank, const Group& group) {
  const auto listed = [&](const std::vector<int>& ranks) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); };
  rank_ = rank;
  completes_ = listed(decision.complete);
  receives_aside_ = listed(decision.receive_aside);
  receives_next_ = truth_.place && truth_.place->layout_number != group.layout_number;
  actions_ = regroup_actions(decision, rank, world_.mistake);
}

void SimulatedRank::regroup(Group& group, const RegroupAction& action) {
  switch (action.kind) {
    case RegroupAction::Kind::kSendValues:
      group.channels[{rank_, action.peer}].push_back({.agreed = agreed_});
      return;
    case RegroupAction::Kind::kReceiveValues: {
      std::deque<SentMessage>& channel = group.channels[{action.peer, rank_}];
      const AgreedValues received = channel.front().agreed;
      channel.pop_front();
      if (completes_ || world_.mistake == Mistake::kTakesValuesTooEarly) {
        take_values(received);
      } else {
        values_aside_ = received;
      }
      return;
    }
    case RegroupAction::Kind::kLocal:
      complete_or_return();
      return;
    case RegroupAction::Kind::kPrepare:
      prepare(group);
      return;
    case RegroupAction::Kind::kSend: {
      const ElementRange& range = action.transfer.range;
      const std::vector<Hash>& tensor = target()[action.transfer.tensor];
      group.channels[{rank_, action.peer}].push_back({.elements = {tensor.begin() + range.begin, tensor.begin() + range.end}});
      return;
    }
    case RegroupAction::Kind::kReceive: {
      std::deque<SentMessage>& channel = group.channels[{action.peer, rank_}];
      std::vector<Hash>& tensor = target()[action.transfer.tensor];
      std::copy(channel.front().elements.begin(), channel.front().elements.end(), tensor.begin() + action.transfer.range.begin);
      channel.pop_front();
      return;
    }
    case RegroupAction::Kind::kFinish:
      finish(group);
      return;
    case RegroupAction::Kind::kLoad:
      load(group);
      return;
    case RegroupAction::Kind::kEnterBarrier:
      ++board(group).entered;
      return;
    case RegroupAction::Kind::kLeaveBarrier:
      ++collectives_;
      progress_.switch_layout();
      if (!truth_.next) return;
      values_ = std::move(next_);
      truth_.place = truth_.next;
      truth_.next.reset();
      truth_.made = agreed_.step;
      return;
  }
}

void SimulatedRank::take_values(const AgreedValues& values) {
  const Hash own = agreed_.values;
  agreed_ = values;
  if (world_.mistake == Mistake::kUpdatesWithOwnValues) agreed_.values = own;
  progress_.take_values(agreed_.step, agreed_.evaluated);
}

void SimulatedRank::restore_buffers() {
  if (!buffers_before_ || world_.mistake == Mistake::kBuffersAreNotRestored) return;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (world_.model->has_role(i, StateRole::kBuffer)) values_[i] = (*buffers_before_)[i];
  }
  buffers_before_.reset();
}

void SimulatedRank::complete_or_return() {
  if (world_.mistake == Mistake::kCompletesTwice && !completes_ && truth_.made >= 0 && truth_.made == agreed_.step &&
      truth_.gradients == truth_.made) {
    apply_update(true);
  }
  if (!completes_) {
    restore_buffers();
    return;
  }
  progress_.begin_update();
  apply_update(world_.mistake != Mistake::kMirrorsAreNotCompleted);
  progress_.updated();
  truth_.made = agreed_.step;
  buffers_before_.reset();
}

Values& SimulatedRank::target() {
  return receives_next_ ? next_ : receives_aside_ && world_.mistake != Mistake::kReceivesInPlace ? aside_ : values_;
}

// Collects the pieces that this rank already has for the new layout: pieces of its current layout, and pieces for a later
// layout that it received in an interrupted regroup.
void SimulatedRank::prepare(const Group& group) {
  if (receives_aside_) aside_ = values_;
  if (!receives_next_) return;
  if (truth_.next && truth_.next->layout_number == group.layout_number) return;
  Values before = std::move(next_);
  next_ = world_.model->absent();
  copy_held(own_layout(), truth_.place->rank, values_, next_);
  if (truth_.next) {
    copy_held(*world_.layouts[static_cast<std::size_t>(truth_.next->layout_number)], truth_.next->rank, before, next_);
  }
  // next_ still contains all pieces of the layout in truth_.next, so this rank may still report them as received.
}

void SimulatedRank::finish(const Group& group) {
  const LayoutPlace place{.layout_number = group.layout_number, .rank = rank_};
  if (receives_aside_ && !receives_next_ && world_.mistake != Mistake::kReceivesInPlace) values_ = aside_;
  if (values_aside_) take_values(*values_aside_);
  values_aside_.reset();
  progress_.received_all(place);
  if (receives_next_) {
    truth_.next = place;
    if (world_.mistake != Mistake::kSwitchesBeforeTheBarrier) return;
    progress_.switch_layout();
    values_ = next_;
    return;
  }
  truth_.place = place;
  truth_.made = agreed_.step;
}

void SimulatedRank::load(const Group& group) {
  const LayoutPlace place{.layout_number = group.layout_number, .rank = rank_};
  values_ = world_.model->absent();
  copy_held(*group.layout, rank_, world_.history->after(world_.checkpoint), values_);
  progress_.start_from(world_.checkpoint, place);
  agreed_ = {.step = world_.checkpoint, .values = world_.history->agreed(world_.checkpoint)};
  truth_ = {.made = world_.checkpoint, .place = place};
  buffers_before_.reset();
}

}  // namespace ddprun::trainer::simulation
