#include "rendezvous/node/record_gate.hpp"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {
namespace {

LinkId link_of(const NodeAction& action) {
  if (const auto* to_listener = std::get_if<node_action::ToListener>(&action)) return to_listener->link;
  if (const auto* to_dialler = std::get_if<node_action::ToDialler>(&action)) return to_dialler->link;
  if (const auto* close = std::get_if<node_action::CloseLink>(&action)) return close->link;
  return 0;
}

bool is_vote(const NodeAction& action) {
  const auto* sent = std::get_if<node_action::ToListener>(&action);
  const auto* vote = sent == nullptr ? nullptr : std::get_if<Vote>(&sent->message);
  return vote != nullptr && vote->granted();
}

// Returns true for a message whose only purpose is to get a reply. After its link is closed, the message is useless.
bool is_greeting(const NodeAction& action) {
  const auto* sent = std::get_if<node_action::ToListener>(&action);
  return sent != nullptr && (std::holds_alternative<Hello>(sent->message) || std::holds_alternative<Vote>(sent->message));
}

}  // namespace

std::vector<NodeAction> RecordGate::pass(std::vector<NodeAction> actions) {
  std::vector<NodeAction> now;
  const auto is_record = [](const NodeAction& action) { return std::holds_alternative<member_action::Remember>(action); };
  if (const auto last = std::find_if(actions.rbegin(), actions.rend(), is_record); last != actions.rend()) {
    in_flight_.push_back(std::get<member_action::Remember>(*last).record);
    ++newest_;
    now.push_back(std::move(*last));
  }
  for (NodeAction& action : actions) {
    if (std::holds_alternative<node_action::Finish>(action) && !has_held_transfer()) {
      // This process is about to end, so the held messages cannot wait for their records any longer. They are sent now. Only
      // votes are dropped, because a vote must not count before it is recorded.
      for (Held& held : std::exchange(held_, {})) {
        if (!is_vote(held.action)) now.push_back(std::move(held.action));
      }
    } else if (is_record(action) || (waits_ && concerns_held_start(action))) {
      continue;
    } else if (waits_ && !passes(action)) {
      const LinkId link = link_of(action);
      held_.push_back({std::move(action), link, newest_});
      continue;
    }
    now.push_back(std::move(action));
  }
  return now;
}

std::vector<NodeAction> RecordGate::written(bool ok) {
  std::vector<NodeAction> now;
  if (in_flight_.empty()) return now;
  const std::uint64_t number = newest_ - in_flight_.size() + 1;
  written_ = std::move(in_flight_.front());
  in_flight_.pop_front();
  std::vector<Held> held;
  for (Held& one : held_) {
    if (one.record > number) {
      held.push_back(std::move(one));
    } else if (ok || !is_vote(one.action)) {
      now.push_back(std::move(one.action));
    }
  }
  held_ = std::move(held);
  return now;
}

// Handles an action for workers whose StartWorkers action is still held back. Returns true if the action was handled. A grant
// updates the held StartWorkers. A save is queued after the held StartWorkers. A stop removes the held StartWorkers, because
// the workers were never started.
bool RecordGate::concerns_held_start(NodeAction& action) {
  const auto is_start = [](const Held& one) { return std::holds_alternative<member_action::StartWorkers>(one.action); };
  const auto belongs_to_start = [&](const Held& one) {
    return is_start(one) || std::holds_alternative<StopAndSave>(one.action) || std::holds_alternative<StopAt>(one.action);
  };
  const bool stop = std::holds_alternative<member_action::StopWorkers>(action);
  const auto* order = std::get_if<StopAndSave>(&action);
  const bool save = (order != nullptr && !order->held) || std::holds_alternative<StopAt>(action);
  const auto* grant = std::get_if<member_action::ExtendWorkerLease>(&action);
  if (std::holds_alternative<member_action::StartWorkers>(action)) never_started_ = false;
  if (!stop && !save && grant == nullptr) return false;
  const auto held = std::find_if(held_.begin(), held_.end(), is_start);
  if (held == held_.end()) return never_started_;
  if (grant != nullptr) {
    std::get<member_action::StartWorkers>(held->action).until = grant->until;
  } else if (save) {
    held_.push_back({std::move(action), 0, held->record});
  } else {
    std::erase_if(held_, belongs_to_start);
    never_started_ = unstarted_ = true;
  }
  return true;
}

bool RecordGate::passes(NodeAction& action) {
  if (in_flight_.empty()) return true;
  if (std::holds_alternative<member_action::StartWorkers>(action)) return false;
  if (std::holds_alternative<node_action::Finish>(action)) return !has_held_transfer();
  if (auto* to_listener = std::get_if<node_action::ToListener>(&action)) return !must_wait(*to_listener);
  if (auto* to_dialler = std::get_if<node_action::ToDialler>(&action)) return !must_wait(*to_dialler);
  if (const auto* close = std::get_if<node_action::CloseLink>(&action)) {
    // Drops a Hello or Vote that waits for the closed link. If the message were sent later, the receiver could not distinguish
    // it from a new message.
    std::erase_if(held_, [&](const Held& one) { return one.link == close->link && is_greeting(one.action); });
    return !has_held_on(close->link);
  }
  return true;
}

bool RecordGate::must_wait(node_action::ToListener& action) const {
  if (auto* ping = std::get_if<Ping>(&action.message)) {
    if (!promise_is_written()) ping->echo = 0;
    ping->installed = written_.state.current.id;
    return false;
  }
  if (auto* ready = std::get_if<Ready>(&action.message)) ready->installed = written_.state.current.id;
  if (std::holds_alternative<Resume>(action.message) || std::holds_alternative<Received>(action.message)) return false;
  if (std::holds_alternative<Hello>(action.message) || std::holds_alternative<Vote>(action.message)) return true;
  return has_held_on(action.link);
}

bool RecordGate::must_wait(node_action::ToDialler& action) const {
  if (std::holds_alternative<Resumed>(action.message) || std::holds_alternative<Received>(action.message)) return false;
  if (!promise_is_written()) return true;
  if (auto* pong = std::get_if<Pong>(&action.message)) {
    if (written_.state.current.id < pong->committed) pong->committed = RoundId{};
    return false;
  }
  const bool depends_on_record =
      std::holds_alternative<Release>(action.message) || std::holds_alternative<TransferLeadership>(action.message);
  return depends_on_record || has_held_on(action.link);
}

bool RecordGate::has_held_transfer() const {
  return std::any_of(held_.begin(), held_.end(), [](const Held& held) {
    const auto* sent = std::get_if<node_action::ToDialler>(&held.action);
    return sent != nullptr && std::holds_alternative<TransferLeadership>(sent->message);
  });
}

bool RecordGate::has_held_on(LinkId link) const {
  return std::any_of(held_.begin(), held_.end(), [&](const Held& held) { return held.link == link; });
}

bool RecordGate::promise_is_written() const {
  return !waits_ || in_flight_.empty() || in_flight_.back().state.promised_term == written_.state.promised_term;
}

}  // namespace ddprun::rendezvous
