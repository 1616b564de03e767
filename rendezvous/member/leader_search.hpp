// Whom a node without a coordinator dials, and when: the coordinator and the successors that it remembers, the addresses at
// which the job was said to be, and where others told it to look. The member asks it while it looks. Pure.
//
// It owns the addresses to try with the link to each, and the newest few hints.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "rendezvous/member/action.hpp"
#include "rendezvous/member/settings.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

class LeaderSearch {
 public:
  explicit LeaderSearch(const MemberSettings& settings);

  // Begins anew. The coordinator may only have lost the connection, and who restarts is a candidate too: so `known` has it as
  // well.
  void begin(const std::vector<Successor>& known);
  // Dials what is due. Returns the links that it closes, since nothing came over them for a lease.
  std::vector<LinkId> dial_due(nanoseconds lease, Time now, MemberActions& actions);
  std::optional<Time> next_deadline(nanoseconds lease) const;
  // Keeps that link alone. Returns the address behind it.
  Address settle(LinkId link, MemberActions& actions);
  // Closes all links but that one.
  void end(std::optional<LinkId> but, MemberActions& actions);

  // ---- of one link; nothing happens if it is none of these ----
  bool dialled(LinkId link) const;
  void closed(LinkId link, Time now);
  // Somebody is there, and counts on this node.
  void heard(LinkId link, Time now);
  // Closed from here, to be tried again at that time.
  void retry(LinkId link, Time at);
  // The same, for good: a coordinator was there.
  void retry_lasting(LinkId link, Time at);

  // ---- hints ----
  // Somebody may be there who leads, or knows who does. `looking`: it is dialled now.
  void hint(const Address& address, bool looking, Time now);
  // Where nodes may be that look for a coordinator.
  std::vector<Address> places(const std::vector<Successor>& known) const;

 private:
  struct Target {
    Address address{};
    bool lasting = true;  // not only because of a hint
    LinkId link = 0;      // 0: none
    Time next_try{};
    Time dialled{};
  };

  Target* target_of(LinkId link);

  Address self_;
  std::vector<Address> endpoints_;
  nanoseconds redial_;
  std::vector<Target> targets_;
  std::deque<Address> hints_;  // newest last
  LinkId next_link_;
};

}  // namespace ddprun::rendezvous
