// The answer to a node that says Hello: it is admitted, refused or redirected; or it knows more of the job than this
// coordinator, which then steps down. The coordinator asks once for each Hello, and carries out the answer in the order of its
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
  // The node, or another coordinator, knows more. Then ignore the other fields.
  std::optional<coordinator_action::StepDown> step_down{};
  // The node is here already over an older link, which must be lost. If an earlier process of the node has that link, it is
  // told why.
  bool replaces = false;
  std::optional<Refused> to_replaced{};
  // Whether the node is admitted. If not: it gets `answer`, if there is one; people see `notice`, if there is one; and its link
  // is closed.
  bool admitted = false;
  std::optional<FromCoordinator> answer{};
  std::string notice{};
};

// The part of the coordinator's state that decides.
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

// Whether these values are possible: a Hello may come from anybody, or from a damaged record.
bool makes_sense(const PersistentState& state);

// The node's name for messages.
std::string name_of(const Hello& hello);

}  // namespace ddprun::rendezvous
