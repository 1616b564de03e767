// Which addresses a node without a coordinator dials, and when: the coordinator and the successors that it remembers, the job's
// addresses from the command line, and hints of other nodes. The member asks it during the search. Pure.
//
// This class owns the addresses to try with the link to each, and the newest few hints.
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

  // Starts the search. The coordinator may only have lost the connection, and a restarted coordinator is a candidate too: so
  // `known` includes it.
  void begin(const std::vector<Successor>& known);
  // Dials each address that is due. Returns the links that it closes, since nothing came over them for one lease.
  std::vector<LinkId> dial_due(nanoseconds lease, Time now, MemberActions& actions);
  std::optional<Time> next_deadline(nanoseconds lease) const;
  // Keeps only that link. Returns its address.
  Address settle(LinkId link, MemberActions& actions);
  // Closes all links except `but`.
  void end(std::optional<LinkId> but, MemberActions& actions);

  // ---- of one link; nothing happens if it is none of these ----
  bool dialled(LinkId link) const;
  void closed(LinkId link, Time now);
  // The other side answers, and counts this node as an elector.
  void heard(LinkId link, Time now);
  // Closes the link, to be tried again at that time.
  void retry(LinkId link, Time at);
  // As retry(), and keeps the address for good: a coordinator was there.
  void retry_lasting(LinkId link, Time at);

  // ---- hints ----
  // A node at that address may lead, or know who does. `looking`: dial it now.
  void hint(const Address& address, bool looking, Time now);
  // The addresses at which nodes may look for a coordinator.
  std::vector<Address> places(const std::vector<Successor>& known) const;

 private:
  struct Target {
    Address address{};
    bool lasting = true;  // it stays in the list; a hint alone does not
    LinkId link = 0;      // 0: no connection
    Time next_try{};
    Time dialled{};
  };

  Target* target_of(LinkId link);

  Address self_;
  std::vector<Address> endpoints_;
  nanoseconds redial_;
  std::vector<Target> targets_;
  std::deque<Address> hints_;  // the newest is last
  LinkId next_link_;
};

}  // namespace ddprun::rendezvous
