// What becomes of a node that says hello: it is let in, refused, shown the way, or it knows more of the job than this
// coordinator, which then steps down. The coordinator asks once a hello and does what the answer says, in the order of its
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
  // The node, or another coordinator, knows more. Nothing else is to be done then.
  std::optional<coordinator_action::StepDown> step_down{};
  // The node is here already, over a link that is to be lost; an earlier process of it is told why.
  bool replaces = false;
  std::optional<Refused> to_replaced{};
  // Whether it gets in. If not, it is told that, if anything, people are told this, if anything, and its link is closed.
  bool admitted = false;
  std::optional<FromCoordinator> answer{};
  std::string notice{};
};

// What the coordinator knows.
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

// Whether a node can stand there: what a hello says may be anybody's, or from a record that is damaged.
bool makes_sense(const Standing& standing);

// For people.
std::string name_of(const Hello& hello);

}  // namespace ddprun::rendezvous
