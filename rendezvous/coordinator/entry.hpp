// Decides the answer to a Hello, the first message of a node: the node is admitted, refused or redirected. If the node has
// recorded a later state of the job than this coordinator has, the coordinator must step down. The coordinator calls entry_of()
// for each Hello, and applies the fields of the result in their order. The functions are pure and change nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/coordinator/action.hpp"
#include "rendezvous/membership/flap_damper.hpp"
#include "rendezvous/membership/membership.hpp"
#include "rendezvous/membership/peers.hpp"
#include "rendezvous/protocol/coordinator_settings.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

struct Entry {
  // Set if this coordinator must step down, because the node has recorded a later term or round. The caller must then ignore
  // the other fields.
  std::optional<coordinator_action::StepDown> step_down{};
  // True if an older link of the same node is still open. The caller must close that link. If the link belongs to an earlier
  // process of the node, the caller must first send `to_replaced` over it.
  bool replaces = false;
  std::optional<Refused> to_replaced{};
  // True if the node is admitted. If false, the caller sends `answer` if it is set, logs `notice` if it is not empty, and
  // closes the link.
  bool admitted = false;
  std::optional<FromCoordinator> answer{};
  std::string notice{};
};

// Read-only access to the state of the coordinator that the decision needs.
struct EntryView {
  const CoordinatorSettings& settings;
  std::uint64_t term;
  bool elected;
  const Peers& peers;
  const Membership& membership;
  const FlapDamper& losses;
  Time now;
};

Entry entry_of(const Hello& hello, const EntryView& view);

// Returns a refusal if the node uses another protocol version or belongs to another job; nullopt if it does not. Nodes that
// are not the coordinator also use this check.
std::optional<Refused> refusal_of_foreign(const Hello& hello, const RunDigest& run);

// Returns true if all values in `state` are in their valid ranges. The check is necessary, because a Hello may come from any
// process, or from a node with a damaged record.
bool is_plausible(const PersistentState& state);

// Returns the host name of the node, for messages.
std::string name_of(const Hello& hello);

}  // namespace ddprun::rendezvous
