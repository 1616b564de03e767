#include "rendezvous/membership/flap_damper.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kRememberedNodes = 4096;

}  // namespace

bool FlapDamper::note(const NodeId& id, Time now) {
  if (nodes_.size() >= kRememberedNodes) nodes_.erase(nodes_.begin());
  Node& node = nodes_[id];
  std::erase_if(node.times, [&](Time time) { return time + settings_.flap_window < now; });
  node.times.push_back(now);
  if (std::ssize(node.times) < settings_.flaps) return false;
  node.times.clear();
  node.set_aside_until = now + settings_.cool_down;
  return true;
}

std::optional<milliseconds> FlapDamper::set_aside_for(const NodeId& id, Time now) const {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second.set_aside_until <= now) return std::nullopt;
  return std::chrono::ceil<milliseconds>(found->second.set_aside_until - now);
}

}  // namespace ddprun::rendezvous
