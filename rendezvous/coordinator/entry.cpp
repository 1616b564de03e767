// Implementation of entry.hpp.
#include "rendezvous/coordinator/entry.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {
namespace {

constexpr std::uint64_t kLargestTerm = std::uint64_t{1} << 62;
constexpr std::int64_t kLargestRound = std::int64_t{1} << 62;

bool config_makes_sense(const Config& config) {
  return config.nodes >= 0 && config.nodes <= kMaxNodes && config.rank >= -1 && config.rank < std::max(config.nodes, 1) &&
         config.id.term <= kLargestTerm && config.born <= config.id.term && config.id.round >= -1 &&
         config.id.round <= kLargestRound && config.arbiter <= Arbiter::kEtcd && (!config.has_arbiter() || config.nodes == 2);
}

// The node counts in the syntax of --nnodes.
std::string nnodes_text(std::int32_t min_nodes, std::int32_t max_nodes) {
  return min_nodes == max_nodes ? std::to_string(max_nodes) : std::to_string(min_nodes) + ":" + std::to_string(max_nodes);
}

// Reasons that apply to any node, in any state of this coordinator.
std::optional<Refused> refusal_of(const Hello& hello, const EntryView& view) {
  const CoordinatorSettings& settings = view.settings;
  if (hello.protocol != kProtocolVersion) {
    return Refused{.reason = Refusal::kVersion,
                   .text = "this agent speaks version " + std::to_string(hello.protocol) +
                           " of the rendezvous, the coordinator version " + std::to_string(kProtocolVersion) +
                           "; install the same ddprun on both"};
  }
  if (hello.run != settings.run) {
    return Refused{.reason = Refusal::kRun,
                   .text = "the job at this address has another run id; give every node the same --rdzv-id"};
  }
  const bool has_counts = hello.max_nodes != 0 && !hello.coordinates;
  if (has_counts && (hello.min_nodes != settings.min_nodes || hello.max_nodes != settings.max_nodes)) {
    return Refused{.reason = Refusal::kBadHello,
                   .text = "this node has --nnodes " + nnodes_text(hello.min_nodes, hello.max_nodes) +
                           ", the job at this address has --nnodes " + nnodes_text(settings.min_nodes, settings.max_nodes) +
                           "; use the same --nnodes on every node, or a different --rdzv-id for a different job"};
  }
  if (hello.local_world_size < 1 || hello.local_world_size > kMaxWorkersPerNode || hello.wanted_group_rank < -1 ||
      hello.wanted_group_rank >= settings.max_nodes || !makes_sense(hello.state)) {
    return Refused{.reason = Refusal::kBadHello,
                   .text = "it asks for node rank " + std::to_string(hello.wanted_group_rank) + " of " +
                           std::to_string(settings.max_nodes) + " with " + std::to_string(hello.local_world_size) +
                           " workers; expected a rank from 0 to " + std::to_string(settings.max_nodes - 1) + " and 1 to " +
                           std::to_string(kMaxWorkersPerNode) + " workers"};
  }
  if (hello.listens.host.empty() && hello.node != settings.self) {
    return Refused{.reason = Refusal::kBadHello, .text = "it does not say at which address it is"};
  }
  if (hello.arbiter != settings.arbiter && !hello.coordinates) {
    return Refused{
        .reason = Refusal::kBadHello,
        .text = "it has another --arbiter than the coordinator, or only one of both has one; give every node the same"};
  }
  if (const auto wait = view.losses.set_aside_for(hello.node, view.now)) {
    return Refused{.reason = Refusal::kSetAside,
                   .text = "it was lost too often and is set aside for " + std::to_string(wait->count()) + " ms",
                   .retry_after_ms = wait->count()};
  }
  return std::nullopt;
}

// Of two coordinators, the one with the later term leads. But one that never had a round yields to one that had.
Entry answer_other_coordinator(const Hello& other, const EntryView& view) {
  const bool never_began = !view.membership.current().exists() && other.state.current.exists();
  if (other.state.promised_term > view.term || never_began) {
    return {.step_down = coordinator_action::StepDown{.why = name_of(other) + " coordinates a later term",
                                                      .term = other.state.promised_term,
                                                      .leader = other.listens}};
  }
  const Peer* self = view.peers.find(view.settings.self);
  return {.answer = Redirect{.term = view.term, .coordinator = self == nullptr ? Address{} : self->hello.listens}};
}

// True for a node that knows a round of a later coordinator, or any round if this coordinator knows none.
bool knows_more(const Hello& hello, const EntryView& view) {
  const Config& told = hello.state.current;
  const bool knows_nothing = !view.membership.current().exists();
  const bool promised_more = hello.state.promised_term > view.term && !knows_nothing;
  return promised_more || (told.exists() && (told.id.term > view.term || (knows_nothing && !view.elected)));
}

// Each node id and each requested rank can be in use only once.
Entry place_for(const Hello& hello, const EntryView& view) {
  Entry entry;
  if (const Peer* known = view.peers.find(hello.node)) {
    const Hello& before = known->hello;
    if (before.incarnation == hello.incarnation && before.attempt > hello.attempt) {
      return {};  // an older Hello, over a slower connection
    }
    entry.replaces = known->link.has_value();
    const Refused replaced{.reason = Refusal::kReplaced, .text = "a later process with the identity of this node has joined"};
    if (entry.replaces && view.settings.rules.later_process_replaces) {
      if (hello.incarnation < before.incarnation) return {.answer = replaced};
      if (hello.incarnation > before.incarnation) entry.to_replaced = replaced;
    }
  }
  const bool ranks_are_fixed = view.settings.min_nodes == view.settings.max_nodes;
  const NodeId* holder = ranks_are_fixed ? view.peers.holder_of(hello.wanted_group_rank) : nullptr;
  if (holder != nullptr && *holder != hello.node) {
    Refused taken{.reason = Refusal::kRankTaken,
                  .text = "node rank " + std::to_string(hello.wanted_group_rank) + " is taken by " +
                          name_of(view.peers.at(*holder).hello) + "; give every node its own --node-rank",
                  .retry_after_ms = (view.settings.lease + view.settings.lease / 5).count()};
    entry.notice = name_of(hello) + ": " + taken.text;
    entry.answer = std::move(taken);
    return entry;
  }
  // Nodes of one job may differ in their arguments. But a surplus node with different arguments probably belongs to another
  // job.
  const bool is_new = view.peers.find(hello.node) == nullptr && !hello.state.current.exists();
  const bool other_command = hello.command != 0 && view.settings.command != 0 && hello.command != view.settings.command;
  if (is_new && other_command && view.peers.connected() >= view.settings.max_nodes) {
    Refused surplus{.reason = Refusal::kBadHello,
                    .text = "the job at this address has all " + std::to_string(view.settings.max_nodes) +
                            " nodes and runs another program or other arguments; use a different --rdzv-id for a different "
                            "job, or the same command for a spare node",
                    .retry_after_ms = (view.settings.lease + view.settings.lease / 5).count()};
    entry.notice = name_of(hello) + ": " + surplus.text;
    entry.answer = std::move(surplus);
    return entry;
  }
  entry.admitted = true;
  return entry;
}

// Checks the ranges: this coordinator calculates with the budget's values, and they come from another node.
bool budget_makes_sense(const Budget& budget) {
  constexpr std::int32_t kMost = 1 << 30;
  const auto is_count = [](std::int32_t count) { return 0 <= count && count <= kMost; };
  const RestartHistory& history = budget.history;
  return is_count(budget.restart_count) && is_count(history.used) &&
         std::all_of(history.by_cause.begin(), history.by_cause.end(), is_count);
}

}  // namespace

bool makes_sense(const PersistentState& state) {
  return state.promised_term <= kLargestTerm && config_makes_sense(state.current) && config_makes_sense(state.previous) &&
         state.current.id.term <= state.promised_term && budget_makes_sense(state.budget);
}

Entry entry_of(const Hello& hello, const EntryView& view) {
  if (std::optional<Refused> refused = refusal_of(hello, view)) {
    std::string notice = name_of(hello) + ": " + refused->text;
    return {.answer = *std::move(refused), .notice = std::move(notice)};
  }
  if (hello.coordinates) return answer_other_coordinator(hello, view);
  if (knows_more(hello, view)) {
    return {.step_down = coordinator_action::StepDown{
                .why = name_of(hello) + " knows of a later round", .term = hello.state.promised_term, .leader = {}}};
  }
  return place_for(hello, view);
}

std::string name_of(const Hello& hello) {
  return hello.hostname.empty() ? "a node without a name" : hello.hostname;
}

}  // namespace ddprun::rendezvous
