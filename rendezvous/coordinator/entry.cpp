#include "rendezvous/coordinator/entry.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {
namespace {

constexpr std::uint64_t kLargestTerm = std::uint64_t{1} << 62;
constexpr std::int64_t kLargestRound = std::int64_t{1} << 62;

bool config_is_plausible(const Config& config) {
  return config.nodes >= 0 && config.nodes <= kMaxNodes && config.rank >= -1 && config.rank < std::max(config.nodes, 1) &&
         config.id.term <= kLargestTerm && config.born <= config.id.term && config.id.round >= -1 &&
         config.id.round <= kLargestRound && config.arbiter <= Arbiter::kEtcd && (!config.has_arbiter() || config.nodes == 2);
}

// Formats the minimum and maximum node counts in the syntax of --nnodes: "4" or "2:4".
std::string nnodes_text(std::int32_t min_nodes, std::int32_t max_nodes) {
  return min_nodes == max_nodes ? std::to_string(max_nodes) : std::to_string(min_nodes) + ":" + std::to_string(max_nodes);
}

// Returns a refusal if the Hello is unacceptable in any state of the job: another job, different settings, invalid values, or
// too many lost connections.
std::optional<Refused> refusal_of(const Hello& hello, const EntryView& view) {
  const CoordinatorSettings& settings = view.settings;
  if (std::optional<Refused> foreign = refusal_of_foreign(hello, settings.run)) return foreign;
  const bool has_counts = hello.max_nodes != 0 && !hello.coordinates;
  if (has_counts && (hello.min_nodes != settings.min_nodes || hello.max_nodes != settings.max_nodes)) {
    return Refused{.reason = Refusal::kBadHello,
                   .text = "this node has --nnodes " + nnodes_text(hello.min_nodes, hello.max_nodes) +
                           ", the job at this address has --nnodes " + nnodes_text(settings.min_nodes, settings.max_nodes) +
                           "; use the same --nnodes on every node, or a different --rdzv-id for a different job"};
  }
  if (hello.local_world_size < 1 || hello.local_world_size > kMaxWorkersPerNode || hello.wanted_group_rank < -1 ||
      hello.wanted_group_rank >= settings.max_nodes || !is_plausible(hello.state)) {
    return Refused{.reason = Refusal::kBadHello,
                   .text = "it requests node rank " + std::to_string(hello.wanted_group_rank) + " of " +
                           std::to_string(settings.max_nodes) + " with " + std::to_string(hello.local_world_size) +
                           " workers; expected a rank from 0 to " + std::to_string(settings.max_nodes - 1) + " and 1 to " +
                           std::to_string(kMaxWorkersPerNode) + " workers"};
  }
  if (hello.listens.host.empty() && hello.node != settings.self) {
    return Refused{.reason = Refusal::kBadHello, .text = "its hello message contains no address"};
  }
  if (hello.arbiter != settings.arbiter && !hello.coordinates) {
    return Refused{
        .reason = Refusal::kBadHello,
        .text = "its --arbiter differs from the --arbiter of the coordinator; give every node the same --arbiter, or none"};
  }
  if (const auto wait = view.losses.set_aside_for(hello.node, view.now)) {
    return Refused{
        .reason = Refusal::kSetAside,
        .text = "the node lost its connection too often; the node can join again in " + std::to_string(wait->count()) + " ms",
        .retry_after_ms = wait->count()};
  }
  return std::nullopt;
}

// Resolves a conflict with another coordinator, which has sent a Hello. In general, the coordinator with the later term leads.
// But a coordinator that has no round always steps down in favor of a coordinator that has a round.
Entry answer_other_coordinator(const Hello& other, const EntryView& view) {
  const bool has_no_round = !view.membership.current().exists() && other.state.current.exists();
  if (other.state.promised_term > view.term || has_no_round) {
    return {.step_down = coordinator_action::StepDown{.why = name_of(other) + " is the coordinator of a later term",
                                                      .term = other.state.promised_term,
                                                      .leader = other.listens}};
  }
  const Peer* self = view.peers.find(view.settings.self);
  return {.answer = Redirect{.term = view.term, .coordinator = self == nullptr ? Address{} : self->hello.listens}};
}

// Returns true if the node has recorded a round of a later coordinator. If this coordinator was not elected and has not had a
// round, any recorded round counts as later.
bool knows_later_round(const Hello& hello, const EntryView& view) {
  const Config& reported = hello.state.current;
  const bool no_round_yet = !view.membership.current().exists();
  const bool promised_later_term = hello.state.promised_term > view.term && !no_round_yet;
  return promised_later_term || (reported.exists() && (reported.id.term > view.term || (no_round_yet && !view.elected)));
}

// Decides whether the node is admitted. Each node id, and each requested rank, may be used by one connection only.
Entry place_for(const Hello& hello, const EntryView& view) {
  Entry entry;
  if (const Peer* known = view.peers.find(hello.node)) {
    const Hello& before = known->hello;
    if (before.incarnation == hello.incarnation && before.attempt > hello.attempt) {
      return {};  // This Hello is older than the last Hello of the node, because a slower connection has delayed it.
    }
    entry.replaces = known->link.has_value();
    const Refused replaced{.reason = Refusal::kReplaced,
                           .text = "another ddprun process of this node has joined and replaces this one"};
    if (entry.replaces && view.settings.rules.later_process_replaces) {
      if (hello.incarnation < before.incarnation) return {.answer = replaced};
      if (hello.incarnation > before.incarnation) entry.to_replaced = replaced;
    }
  }
  const auto refuse = [&](Refusal reason, const std::string& text) {
    entry.notice = name_of(hello) + ": " + text;
    entry.answer =
        Refused{.reason = reason, .text = text, .retry_after_ms = (view.settings.lease + view.settings.lease / 5).count()};
    return entry;
  };
  const bool ranks_are_fixed = view.settings.min_nodes == view.settings.max_nodes;
  const NodeId* holder = ranks_are_fixed ? view.peers.holder_of(hello.wanted_group_rank) : nullptr;
  if (holder != nullptr && *holder != hello.node) {
    return refuse(Refusal::kRankTaken, "node rank " + std::to_string(hello.wanted_group_rank) + " is taken by " +
                                           name_of(view.peers.at(*holder).hello) + "; give every node its own --node-rank");
  }
  // The nodes of one job may have different command lines. But if the job already has all its nodes, a new node with another
  // command line probably belongs to another job.
  const bool is_new = view.peers.find(hello.node) == nullptr && !hello.state.current.exists();
  const bool other_command = hello.command != 0 && view.settings.command != 0 && hello.command != view.settings.command;
  if (is_new && other_command && view.peers.connected() >= view.settings.max_nodes) {
    return refuse(Refusal::kBadHello,
                  "the job at this address has all " + std::to_string(view.settings.max_nodes) +
                      " nodes and runs another program or other arguments; use a different --rdzv-id for a different "
                      "job, or the same command for a spare node");
  }
  entry.admitted = true;
  return entry;
}

// Rejects values that are out of range. The values come from another node. If they were not limited, a later addition could
// overflow.
bool budget_is_plausible(const Budget& budget) {
  constexpr std::int32_t kMax = 1 << 30;
  const auto is_count = [](std::int32_t count) { return 0 <= count && count <= kMax; };
  const RestartHistory& history = budget.history;
  return is_count(budget.restart_count) && is_count(history.used) &&
         std::all_of(history.by_cause.begin(), history.by_cause.end(), is_count);
}

}  // namespace

std::optional<Refused> refusal_of_foreign(const Hello& hello, const RunDigest& run) {
  if (hello.protocol != kProtocolVersion) {
    return Refused{.reason = Refusal::kVersion,
                   .text = "this agent uses version " + std::to_string(hello.protocol) +
                           " of the rendezvous protocol, the other agent uses version " + std::to_string(kProtocolVersion) +
                           "; install the same ddprun on both nodes"};
  }
  if (hello.run == run) return std::nullopt;
  return Refused{.reason = Refusal::kRun,
                 .text = "the job at this address has another run id; give every node the same --rdzv-id"};
}

bool is_plausible(const PersistentState& state) {
  return state.promised_term <= kLargestTerm && config_is_plausible(state.current) && config_is_plausible(state.previous) &&
         state.current.id.term <= state.promised_term && budget_is_plausible(state.budget);
}

Entry entry_of(const Hello& hello, const EntryView& view) {
  if (std::optional<Refused> refused = refusal_of(hello, view)) {
    std::string notice = name_of(hello) + ": " + refused->text;
    return {.answer = *std::move(refused), .notice = std::move(notice)};
  }
  if (hello.coordinates) return answer_other_coordinator(hello, view);
  if (knows_later_round(hello, view)) {
    return {.step_down = coordinator_action::StepDown{
                .why = name_of(hello) + " knows of a later round", .term = hello.state.promised_term, .leader = {}}};
  }
  return place_for(hello, view);
}

std::string name_of(const Hello& hello) {
  return hello.hostname.empty() ? "an unnamed node" : hello.hostname;
}

}  // namespace ddprun::rendezvous
