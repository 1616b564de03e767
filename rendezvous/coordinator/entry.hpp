// The answer to a node's Hello: the node is admitted, refused or redirected. Or it knows more about the job than this
// coordinator, which then steps down. The coordinator calls this for each Hello, and applies the answer in the order of its
// fields. Pure functions; they change nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/presence/losses.hpp"
#include "rendezvous/presence/membership.hpp"
#include "rendezvous/presence/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

struct Entry {
  // Set if the node, or another coordinator, knows more. Then ignore the other fields.
  std::optional<coordinator_action::StepDown> step_down{};
  // The node is still connected over an older link, which must be closed. If that link belongs to an earlier process of the
  // node, `to_replaced` is sent over it.
  bool replaces = false;
  std::optional<Refused> to_replaced{};
  // True if the node is admitted. Otherwise the node gets `answer` if set, `notice` is logged if not empty, and the link is
  // closed.
  bool admitted = false;
  std::optional<FromCoordinator> answer{};
  std::string notice{};
};

// The part of the coordinator's state that the decision depends on.
struct EntryView {
  const CoordinatorSettings& settings;
  std::uint64_t term;
  bool elected;
  const Peers& peers;
  const Membership& membership;
  const Losses& losses;
  Time now;
};

Entry entry_of(const Hello& hello, const EntryView& view);

// True if these values are possible. They are checked because a Hello may come from any process, or from a damaged record.
bool makes_sense(const PersistentState& state);

// The node's name for messages.
std::string name_of(const Hello& hello);

}  // namespace ddprun::rendezvous
