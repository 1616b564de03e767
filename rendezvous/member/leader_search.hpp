// Decides which addresses a node dials if it has no coordinator, and when. The node dials the coordinator and the successors
// in its record, the job's addresses from the command line, and addresses that other nodes have sent as hints. The member uses
// this class during its search. The code is pure: no I/O, no clock.
//
// This class owns the list of addresses, the link to each of them, and the newest kSuccessors hints.
#pragma once

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

  // Starts the search. `known` contains the nodes in the record, including the last coordinator. The search dials the last
  // coordinator too, because it may be alive: perhaps only the connection was lost, or the coordinator was restarted.
  void begin(const std::vector<Successor>& known);
  // Dials each address whose next attempt is due. Closes the links that were silent for one lease, and returns them.
  std::vector<LinkId> dial_due(nanoseconds lease, Time now, MemberActions& actions);
  std::optional<Time> next_deadline(nanoseconds lease) const;
  // Call this when a message shows that the node at the other end of `link` is the coordinator. Closes all other links, and
  // returns the dialed address of `link`.
  Address settle(LinkId link, MemberActions& actions);
  // Closes all links. If `but` is set, this link stays open.
  void end(std::optional<LinkId> but, MemberActions& actions);

  // ---- events of one link; no effect if this class has not dialed the link ----
  bool dialled(LinkId link) const;
  void closed(LinkId link, Time now);
  // Call this when a message has arrived over the link. The silence of the link is then counted from `now`.
  void answered(LinkId link, Time now);
  // Removes the link. Its address is dialed again at the time `at`.
  void retry(LinkId link, Time at);
  // Does the same as retry(). In addition, the address stays in the list for the whole search, because a coordinator has
  // answered there.
  void retry_lasting(LinkId link, Time at);

  // ---- hints ----
  //
  // Adds the address of a node that may be the coordinator, or may have the coordinator's address. If `searching` is true, the
  // current search dials the address.
  void hint(const Address& address, bool searching, Time now);
  // Returns the addresses at which other nodes of the job may search for a coordinator.
  std::vector<Address> addresses(const std::vector<Successor>& known) const;

 private:
  struct Target {
    Address address{};
    bool lasting = true;  // false: the address is only a hint, and is dropped when the list is full
    LinkId link = 0;      // 0: no connection
    Time next_try{};
    Time dialled{};
  };

  Target* target_of(LinkId link);

  Address self_;
  std::vector<Address> endpoints_;
  nanoseconds redial_;
  std::vector<Target> targets_;
  std::deque<Address> hints_;  // the newest hint is last
  LinkId next_link_;
};

}  // namespace ddprun::rendezvous
