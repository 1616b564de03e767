// Decides which addresses a node without a coordinator dials, and when. They are the coordinator and the successors in its
// record, the job's addresses from the command line, and hints of other nodes. The member uses it during the search. Pure.
//
// This class owns the addresses to try, the link to each, and the newest few hints.
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

  // Starts the search. `known` includes the last coordinator: perhaps only the connection was lost, or the coordinator was
  // restarted.
  void begin(const std::vector<Successor>& known);
  // Dials each address that is due. Closes links without any message for one lease, and returns them.
  std::vector<LinkId> dial_due(nanoseconds lease, Time now, MemberActions& actions);
  std::optional<Time> next_deadline(nanoseconds lease) const;
  // Closes all other links. Returns the address of this link.
  Address settle(LinkId link, MemberActions& actions);
  // Closes all links except `but`.
  void end(std::optional<LinkId> but, MemberActions& actions);

  // ---- of one link; nothing happens if it is none of these ----
  bool dialled(LinkId link) const;
  void closed(LinkId link, Time now);
  // The other side answers, and counts this node as an elector.
  void heard(LinkId link, Time now);
  // Closes the link. Its address is dialed again at `at`.
  void retry(LinkId link, Time at);
  // Like retry(), but keeps the address permanently, since a coordinator was found there.
  void retry_lasting(LinkId link, Time at);

  // ---- hints ----
  // The node at that address may lead, or may know the leader. `looking`: dial it now.
  void hint(const Address& address, bool looking, Time now);
  // The addresses at which nodes may look for a coordinator.
  std::vector<Address> places(const std::vector<Successor>& known) const;

 private:
  struct Target {
    Address address{};
    bool lasting = true;  // stays in the list; an address that is only a hint does not
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
