// Implements the network of World (simulated_world.hpp). Each connection has two directions. In each direction, packets arrive
// in order, and the direction may be slow or blocked.
#include <algorithm>
#include <utility>

#include "rendezvous/wire/codec.hpp"
#include "tests/rendezvous/simulation/simulated_world.hpp"

namespace ddprun::rendezvous::simulation {

Nanos World::latency(int from, int to) {
  const auto slow = slow_.find({from, to});
  const Nanos extra = slow != slow_.end() && slow->second.until > time_ ? slow->second.extra : 0;
  return extra + between(100'000, jitter_) + agents_[static_cast<std::size_t>(from)].extra_latency +
         agents_[static_cast<std::size_t>(to)].extra_latency;
}

void World::dial(int from, LinkId id, const Address& address) {
  const int to = std::stoi(address.host);
  Link link;
  link.end[0] = from;
  link.end[1] = to;
  link.id[0] = id;
  link.life[0] = agents_[static_cast<std::size_t>(from)].life;
  links_.push_back(std::move(link));
  const int index = static_cast<int>(links_.size()) - 1;
  agents_[static_cast<std::size_t>(from)].links.emplace(id, index);
  schedule(time_ + latency(from, to), Event::Kind::kConnect, index);
}

void World::connect(int link_index) {
  Link& link = links_[static_cast<std::size_t>(link_index)];
  Agent& from = agents_[static_cast<std::size_t>(link.end[0])];
  Agent& to = agents_[static_cast<std::size_t>(link.end[1])];
  if (!from.node || from.life != link.life[0] || !link.open[0]) return;
  const bool cut =
      !blocked_.empty() && (blocked(link.end[0], link.end[1]) > time_ || blocked(link.end[1], link.end[0]) > time_);
  if (cut || !to.node) {
    const Nanos wait = cut || !to.powered ? 2 * kSecond : latency(link.end[1], link.end[0]);
    from.links.erase(link.id[0]);
    link.open[0] = link.open[1] = false;
    schedule(time_ + wait, Event::Kind::kTimeout, link.end[0], static_cast<std::int64_t>(link.id[0] & ~kDialled), from.life,
             /*job=*/cut ? 1 : 0);
    return;
  }
  link.life[1] = to.life;
  link.id[1] = to.next_accepted++;
  to.links.emplace(link.id[1], link_index);
  if (scenario_.loses_coordinator) {
    to.busy_until = std::max(to.busy_until, time_) + kHandshake;
    for (Pipe& pipe : link.pipe) pipe.last = std::max(pipe.last, to.busy_until);
  }
  send(link_index, 0, Opened{});
  send(link_index, 1, Opened{});
}

void World::send(int link_index, int end, Packet packet) {
  Link& link = links_[static_cast<std::size_t>(link_index)];
  if (!link.open[end]) return;
  ++result_.messages;
  Pipe& pipe = link.pipe[end];
  pipe.packets.push_back(std::move(packet));
  pump_later(link_index, end, std::max(pipe.last, time_ + latency(link.end[end], link.end[1 - end])));
}

void World::pump_later(int link_index, int direction, Nanos at) {
  Pipe& pipe = links_[static_cast<std::size_t>(link_index)].pipe[direction];
  pipe.last = std::max(pipe.last, at);
  if (std::exchange(pipe.pumping, true)) return;
  schedule(at, Event::Kind::kPump, link_index, direction);
}

void World::pump(int link_index, int direction) {
  links_[static_cast<std::size_t>(link_index)].pipe[direction].pumping = false;
  const int from = links_[static_cast<std::size_t>(link_index)].end[direction];
  const int to = links_[static_cast<std::size_t>(link_index)].end[1 - direction];
  if (!blocked_.empty() && blocked(from, to) > time_) {
    return pump_later(link_index, direction, blocked(from, to) + between(0, 300 * kMs));
  }
  if (const Agent& other = agents_[static_cast<std::size_t>(to)]; other.frozen_until > time_) {
    return pump_later(link_index, direction, resumes_at(other));
  }
  Pipe& pipe = links_[static_cast<std::size_t>(link_index)].pipe[direction];
  if (pipe.head == pipe.packets.size()) return;
  Packet packet = std::move(pipe.packets[pipe.head++]);
  if (pipe.head == pipe.packets.size()) {
    pipe.packets.clear();
    pipe.head = 0;
  } else {
    pump_later(link_index, direction, chance(80) ? time_ + 1000 : time_ + between(0, jitter_));
  }
  arrive(link_index, direction, std::move(packet));
}

void World::arrive(int link_index, int direction, Packet packet) {
  Link& link = links_[static_cast<std::size_t>(link_index)];
  const int end = 1 - direction;
  const int index = link.end[end];
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || agent.life != link.life[end]) {
    // A running host answers with a reset if the process is dead. A host without power sends no answer.
    if (agent.powered && link.open[direction] && !std::holds_alternative<Fin>(packet)) {
      link.open[end] = true;
      send(link_index, end, Fin{});
      link.open[end] = false;
    }
    return;
  }
  if (!link.open[end]) return;
  const LinkId id = link.id[end];
  if (std::holds_alternative<Opened>(packet)) {
    deliver(index, node_event::LinkOpened{id, std::to_string(index)});
  } else if (const auto* fin = std::get_if<Fin>(&packet)) {
    link.open[end] = false;
    agent.links.erase(id);
    if (end == 1 && fin->reset) note_away(index, link.end[0], link.life[0]);
    if (end == 1 && !fin->reset) note_lost(index, link.end[0]);
    deliver(index, node_event::LinkClosed{id, fin->reset});
  } else if (auto* from_member = std::get_if<FromMember>(&packet)) {
    if (through_codec_) *from_member = decode_from_member(encode(*from_member));
    note_received(index, link.end[0], *from_member);
    deliver(index, node_event::FromDialler{id, std::move(*from_member)});
  } else {
    auto& message = std::get<FromCoordinator>(packet);
    if (through_codec_) message = decode_from_coordinator(encode(message));
    deliver(index, node_event::FromListener{id, std::move(message)});
  }
}

}  // namespace ddprun::rendezvous::simulation
