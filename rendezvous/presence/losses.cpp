// Implementation of losses.hpp.
#include "rendezvous/presence/losses.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kRememberedNodes = 4096;

}  // namespace

bool Losses::note(const NodeId& id, Time now) {
  if (nodes_.size() >= kRememberedNodes) nodes_.erase(nodes_.begin());
  Node& node = nodes_[id];
  std::erase_if(node.times, [&](Time time) { return time + window_ < now; });
  node.times.push_back(now);
  if (std::ssize(node.times) < flaps_) return false;
  node.times.clear();
  node.set_aside_until = now + cool_down_;
  return true;
}

std::optional<milliseconds> Losses::set_aside_for(const NodeId& id, Time now) const {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second.set_aside_until <= now) return std::nullopt;
  return std::chrono::ceil<milliseconds>(found->second.set_aside_until - now);
}

}  // namespace ddprun::rendezvous
